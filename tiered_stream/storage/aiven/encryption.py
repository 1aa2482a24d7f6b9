"""The Aiven plugin's encryption: one AES key per segment, which is itself encrypted with the operator's RSA key pair.

data key    RSA with OAEP padding, both digests SHA3-512 (Aiven: `RsaEncryptionProvider`)
chunk       IV of 12 bytes, AES-256-GCM ciphertext, tag of 16 bytes (Aiven: `AesEncryptionProvider`)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tiered_stream.errors import ConfigurationError, CorruptDataError, StorageAccessError
from tiered_stream.extras import naming_extras
from tiered_stream.options.remote_options import RSM_CONFIG_PREFIX
from tiered_stream.storage.aiven.manifest import SegmentEncryption

_IV_BYTES = 12


class ChunkCipher:
    """Cipher that decrypts the chunks and indexes of one segment."""

    def __init__(self, data_key: bytes, aad: bytes) -> None:
        self._aes = AESGCM(data_key)
        self._aad = aad

    def decrypt(self, data: memoryview, name: str) -> bytes:
        """Return the decrypted bytes of one chunk or index.

        Args:
            name: name of the chunk or index, for the error.

        Raises:
            CorruptDataError: the data was altered or cut off, or encrypted with another key.
        """
        try:
            return self._aes.decrypt(data[:_IV_BYTES], data[_IV_BYTES:], self._aad)
        except (InvalidTag, ValueError) as error:
            raise CorruptDataError(
                f"{name} does not decrypt: it was altered or cut off, or encrypted with another key"
            ) from error


class KeyRing:
    """RSA private keys of the operator, by the ids of their key pairs; they decrypt the AES keys of segments.

    `prefix` is the prefix of the plugin's properties among the options, for errors.
    """

    def __init__(self, private_keys: Mapping[str, RSAPrivateKey], prefix: str = RSM_CONFIG_PREFIX.default) -> None:
        self._private_keys = private_keys
        self._prefix = prefix

    def cipher(self, encryption: SegmentEncryption, name: str) -> ChunkCipher:
        """Return the cipher of one segment.

        Args:
            encryption: the segment's encrypted data key, from its manifest.
            name: name of the manifest, for the error.

        Raises:
            StorageAccessError: the private key of the segment's key pair is not in the ring.
            CorruptDataError: the data key does not decrypt with the private key.
            ConfigurationError: a package for encrypted segments is not installed.
        """
        private_key = self._private_keys.get(encryption.key_pair_id)
        if private_key is None:
            raise StorageAccessError(
                f"{name}: the segment is encrypted with key pair {encryption.key_pair_id[:100]!r}; name its private "
                f"key in {self._prefix}encryption.key.pairs.ID.private.key.file and ID in "
                f"{self._prefix}encryption.key.pairs"
            )
        try:
            return ChunkCipher(unwrap(encryption.encrypted_data_key, private_key), encryption.aad)
        except ConfigurationError:
            raise
        except ValueError as error:
            raise CorruptDataError(
                f"{name}: its data key does not decrypt with the private key of {encryption.key_pair_id!r}: "
                "the manifest was altered, or that is another pair's key"
            ) from error


def load_key_ring(rsm_config: Mapping[str, str], prefix: str = RSM_CONFIG_PREFIX.default) -> KeyRing:
    """Load the private keys that the plugin's properties `rsm_config` name.

    The properties are `encryption.key.pairs` and `encryption.key.pairs.ID.private.key.file`. Without them, the ring is
    empty. `prefix` is the prefix of the properties among the options, for errors.

    Raises:
        ConfigurationError: the file of a key pair is not named, cannot be read, or holds no RSA private key.
    """
    ids = [key_pair_id.strip() for key_pair_id in rsm_config.get("encryption.key.pairs", "").split(",")]
    return KeyRing({key_pair_id: _load(rsm_config, key_pair_id, prefix) for key_pair_id in ids if key_pair_id}, prefix)


def _load(rsm_config: Mapping[str, str], key_pair_id: str, prefix: str) -> RSAPrivateKey:
    # Spark ignores the case of option names and passes them in lower case.
    name = f"encryption.key.pairs.{key_pair_id.lower()}.private.key.file"
    setting = prefix + name
    if (file := rsm_config.get(name)) is None:
        raise ConfigurationError(f"{setting} is missing: key pair {key_pair_id!r} needs its private key")
    try:
        key = load_pem_private_key(Path(file).read_bytes(), password=None)
    except OSError as error:
        raise ConfigurationError(f"{setting}: {file} cannot be read: {error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):  # the messages of these errors may quote the file
        raise ConfigurationError(f"{setting}: {file} is not an unencrypted private key in PEM") from None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigurationError(f"{setting}: {file} is not an RSA key")
    return key


def unwrap(encrypted: bytes, private_key: RSAPrivateKey) -> bytes:
    """Decrypt the data key `encrypted` by RSAES-OAEP (RFC 8017, 7.1.2) with SHA3-512, and return it.

    `cryptography` does not support SHA3-512 for OAEP, so PyCryptodome decrypts.

    Raises:
        ValueError: the data key does not decrypt.
        ConfigurationError: PyCryptodome is not installed.
    """
    with naming_extras("an encrypted segment"):
        # Imported late, because only encrypted segments need it.
        from Crypto.Cipher import PKCS1_OAEP
        from Crypto.Hash import SHA3_512
        from Crypto.PublicKey import RSA

    numbers = private_key.private_numbers()
    public = numbers.public_numbers
    key = RSA.construct((public.n, public.e, numbers.d, numbers.p, numbers.q), consistency_check=False)
    return PKCS1_OAEP.new(key, hashAlgo=SHA3_512).decrypt(encrypted)
