"""Reader of Java's key stores of type JKS (JDK: `sun.security.provider.JavaKeyStore`).

    u4 0xFEEDFEED, u4 version (1 or 2), u4 count, then `count` entries, then a digest of 20 bytes
    entry         u4 tag, u2 length and alias, u8 date; tag 1: key, chain; tag 2: certificate
    key           u4 length, EncryptedPrivateKeyInfo (DER): SEQUENCE { AlgorithmIdentifier, OCTET STRING }
    chain         u4 count, certificates
    certificate   version 2: u2 length and type; u4 length, X.509 (DER)
    digest        SHA-1 of the password (UTF-16), "Mighty Aphrodite" and all bytes before the digest

An encrypted key (JDK: `KeyProtector`) has three parts: a salt of 20 bytes; the PKCS#8 key, xored with a sequence of
digests; and SHA-1(password, key). The first digest is SHA-1(password, salt), and each further digest is
SHA-1(password, previous digest).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from struct import Struct

from tiered_stream.errors import ConfigurationError
from tiered_stream.records.flexible_versions import Reader

MAGIC = b"\xfe\xed\xfe\xed"

_VERSIONS = (1, 2)
_PRIVATE_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = _SALT_BYTES = hashlib.sha1().digest_size
_WHITENER = b"Mighty Aphrodite"
_U2, _U4, _U8 = Struct(">H"), Struct(">I"), Struct(">Q")
_SEQUENCE, _OCTETS = 0x30, 0x04
_KEY_PROTECTOR = bytes.fromhex("300e060a2b060104012a021101010500")
"""AlgorithmIdentifier of 1.3.6.1.4.1.42.2.17.1.1, the only key encryption in JKS stores."""


@dataclass(frozen=True, slots=True)
class JksKey:
    """Private key of a JKS store, still encrypted, and its certificate chain.

    `alias` is the key's name in the store. `chain` has certificates (DER), the key's own certificate first.
    """

    alias: str
    encrypted: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)

    def decrypt(self, password: str) -> bytes:
        """Decrypt the private key and return it (PKCS#8, DER).

        Raises:
            ConfigurationError: the password is wrong.
        """
        secret, encrypted = password.encode("utf-16-be", "surrogatepass"), self.encrypted
        salt, body = encrypted[:_SALT_BYTES], encrypted[_SALT_BYTES:-_DIGEST_BYTES]
        stream, last = bytearray(), salt
        while len(stream) < len(body):
            last = hashlib.sha1(secret + last).digest()
            stream += last
        key = bytes(byte ^ pad for byte, pad in zip(body, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), encrypted[-_DIGEST_BYTES:]):
            raise ConfigurationError("the password does not fit the private key")
        return key


@dataclass(frozen=True, slots=True)
class JksStore:
    """Content of a JKS store: private keys with their certificate chains, and trusted certificates (DER)."""

    keys: tuple[JksKey, ...]
    certificates: tuple[bytes, ...]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Decode a JKS store, and check its digest with `password`.

    If `password` is None, the digest is not checked, as in Java.

    Raises:
        ConfigurationError: the bytes are not a JKS store, or the password is wrong.
    """
    if password is not None and not hmac.compare_digest(
        _digest(data[:-_DIGEST_BYTES], password), data[-_DIGEST_BYTES:]
    ):
        raise ConfigurationError("the password is wrong, or the file was changed")
    try:
        return _read(Reader(data[:-_DIGEST_BYTES]))
    except ValueError as error:
        raise ConfigurationError(f"it is no JKS store: {error}") from error


def _digest(content: bytes, password: str) -> bytes:
    return hashlib.sha1(password.encode("utf-16-be", "surrogatepass") + _WHITENER + content).digest()


def _read(reader: Reader) -> JksStore:
    magic, version, count = reader.take(4), _u4(reader), _u4(reader)
    if magic != MAGIC or version not in _VERSIONS:
        raise ValueError("it does not begin as one")
    keys, certificates = [], []
    for _ in range(count):
        tag = _u4(reader)
        alias = reader.take(reader.unpack(_U2)[0]).decode("utf-8", "replace")
        reader.unpack(_U8)
        if tag == _PRIVATE_KEY:
            encrypted = _encrypted_key(reader.take(_u4(reader)))
            chain = tuple(_certificate(reader, version) for _ in range(_u4(reader)))
            keys.append(JksKey(alias, encrypted, chain))
        elif tag == _CERTIFICATE:
            certificates.append(_certificate(reader, version))
        else:
            raise ValueError(f"an entry has the tag {tag}")
    return JksStore(tuple(keys), tuple(certificates))


def _certificate(reader: Reader, version: int) -> bytes:
    if version > 1:
        reader.skip(reader.unpack(_U2)[0])
    return reader.take(_u4(reader))


def _u4(reader: Reader) -> int:
    number: int = reader.unpack(_U4)[0]
    return number


def _encrypted_key(info: bytes) -> bytes:
    """Return the encrypted key in an EncryptedPrivateKeyInfo (its OCTET STRING). Raises ValueError if malformed."""
    content = _der(Reader(info), _SEQUENCE)
    if content.take(len(_KEY_PROTECTOR)) != _KEY_PROTECTOR:
        raise ValueError("a private key is encrypted in another way than JKS's own")
    octets = _der(content, _OCTETS)
    encrypted = octets.take(len(octets.data))
    if len(encrypted) <= _SALT_BYTES + _DIGEST_BYTES:
        raise ValueError("a private key is cut off")
    return encrypted


def _der(reader: Reader, tag: int) -> Reader:
    """Read the next DER value, and return a reader of its content. Raises ValueError if its tag is not `tag`."""
    actual_tag, length = reader.take(2)
    if actual_tag != tag:
        raise ValueError(f"DER has the tag {actual_tag} where {tag} belongs")
    if length >= 0x80:
        length = int.from_bytes(reader.take(length & 0x7F), "big")
    return Reader(reader.take(length))
