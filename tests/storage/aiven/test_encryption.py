from __future__ import annotations

import base64
import json
from hashlib import sha3_512
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.golden import golden
from tests.storage.golden_aiven import big_segment, manifests, options
from tiered_stream.errors import ConfigurationError, CorruptDataError, StorageAccessError
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.storage.aiven.encryption import load_key_ring, unwrap
from tiered_stream.storage.aiven.manifest import SegmentEncryption
from tiered_stream.storage.open_fetcher import open_fetcher

TRANSFORMED = "aiven-zstd-aesgcm"
EMPTY_LABEL = sha3_512(b"").digest()


def key_file(folder: Path, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    path = folder / "another.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(path)


def another_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def with_keys(**keys: str) -> dict[str, str]:
    files = {f"encryption.key.pairs.{name}.private.key.file": file for name, file in keys.items()}
    return {"key.prefix": "encz/", "encryption.key.pairs": ", ".join(keys)} | files


def test_the_wrong_private_key_names_manifest_and_key_pair(tmp_path: Path) -> None:
    opened = open_fetcher(options(TRANSFORMED, rsm_config=with_keys(key1=key_file(tmp_path, another_key()))))
    with pytest.raises(CorruptDataError, match=r"rsm-manifest: .*data key .*'key1'"):
        opened.fetch_log_segment(big_segment(TRANSFORMED), 0)


def test_a_missing_key_pair_names_it_and_the_property(tmp_path: Path) -> None:
    opened = open_fetcher(options(TRANSFORMED, rsm_config=with_keys(key2=key_file(tmp_path, another_key()))))
    with pytest.raises(StorageAccessError, match=r"rsm-manifest: .*'key1'.*rsm.config.encryption.key.pairs"):
        opened.fetch_log_segment(big_segment(TRANSFORMED), 0)


def test_a_key_file_that_holds_no_key_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("the-secret-text")
    for file, message in (("no.pem", "unencrypted"), ("none.pem", "read")):
        with pytest.raises(ConfigurationError, match=rf"key1.private.key.file: .*{message}") as caught:
            open_fetcher(options(TRANSFORMED, rsm_config=with_keys(key1=str(tmp_path / file))))
        assert "the-secret-text" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"key1\.private\.key\.file "):
        open_fetcher(options(TRANSFORMED, rsm_config={"encryption.key.pairs": "key1"}))


def test_the_id_of_a_key_pair_may_have_capital_letters(tmp_path: Path) -> None:
    given = {
        "rsm.config.encryption.key.pairs": "Key-2024,OTHER",
        "rsm.config.encryption.key.pairs.Key-2024.private.key.file": key_file(tmp_path, another_key()),
        "rsm.config.encryption.key.pairs.OTHER.private.key.file": key_file(tmp_path, another_key()),
    }
    as_spark_gives_them = GivenOptions(given).with_prefix("rsm.config.")
    key = another_key()
    ring = load_key_ring(as_spark_gives_them | {"encryption.key.pairs.other.private.key.file": key_file(tmp_path, key)})
    ring.cipher(SegmentEncryption("OTHER", oaep_encrypt(key.public_key(), b"k" * 32), b"aad"), "the manifest")


def test_a_key_that_is_not_rsas_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"another\.pem .*RSA"):
        load_key_ring(with_keys(key1=key_file(tmp_path, ec.generate_private_key(ec.SECP256R1()))))


def encryption(data_key: bytes) -> SegmentEncryption:
    return SegmentEncryption("key1", data_key, b"aad")


@pytest.mark.parametrize("data_key", [b"", b"\0" * 256, b"\1" * 256, b"\xff" * 256, b"\1" * 255, b"\1" * 257])
def test_a_data_key_that_no_public_key_encrypted_is_refused(data_key: bytes) -> None:
    private = str(golden(TRANSFORMED).folder / "keys" / "test-only-private.pem")
    with pytest.raises(CorruptDataError, match="the manifest: .*data key"):
        load_key_ring(with_keys(key1=private)).cipher(encryption(data_key), "the manifest")


def test_a_flipped_bit_in_the_data_key_is_found() -> None:
    private = str(golden(TRANSFORMED).folder / "keys" / "test-only-private.pem")
    ring = load_key_ring(with_keys(key1=private))
    manifest = next(iter(manifests(TRANSFORMED).values()))
    assert manifest.encryption is not None
    good = manifest.encryption.encrypted_data_key
    ring.cipher(encryption(good), "the manifest")
    for position in (0, 100, 255):
        bad = bytes(byte ^ (at == position) for at, byte in enumerate(good))
        with pytest.raises(CorruptDataError, match="data key"):
            ring.cipher(encryption(bad), "the manifest")


def test_a_data_key_of_a_size_that_aes_does_not_have_is_refused(tmp_path: Path) -> None:
    key = another_key()
    wrapped = oaep_encrypt(key.public_key(), b"seventeen bytes!!")
    ring = load_key_ring(with_keys(key1=key_file(tmp_path, key)))
    with pytest.raises(CorruptDataError, match="data key"):
        ring.cipher(encryption(wrapped), "the manifest")
    ring.cipher(encryption(oaep_encrypt(key.public_key(), b"k" * 32)), "the manifest")


VECTORS = json.loads((Path(__file__).parent / "oaep_vectors.json").read_text())


def golden_private_key() -> rsa.RSAPrivateKey:
    pem = (golden(TRANSFORMED).folder / "keys" / "test-only-private.pem").read_bytes()
    key = load_pem_private_key(pem, password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


@pytest.mark.parametrize("size", [0, 16, 24, 32, 126])
def test_what_openssl_encrypted_decrypts(size: int) -> None:
    assert unwrap(base64.b64decode(VECTORS[str(size)]), golden_private_key()) == b"k" * size


@pytest.mark.parametrize("padding", ["mgf1 with sha256", "with a label", "pkcs1 v1.5"])
def test_another_padding_is_refused(padding: str) -> None:
    with pytest.raises(ValueError, match="data key"):
        unwrap(base64.b64decode(VECTORS[padding]), golden_private_key())


@pytest.mark.parametrize("bits", [1040, 1041, 1537, 2047, 3072])
def test_keys_of_any_size_that_holds_the_padding_decrypt(bits: int) -> None:
    key = rsa.generate_private_key(65537, bits)
    most = (bits + 7) // 8 - 2 * 64 - 2
    for message in (b"", b"\1" * min(most, 32), bytes(most)):
        assert unwrap(oaep_encrypt(key.public_key(), message), key) == message


def test_a_key_too_small_for_the_padding_is_refused() -> None:
    key = rsa.generate_private_key(65537, 1032)
    with pytest.raises(ValueError, match="data key"):
        unwrap(bytes(128) + b"\1", key)


@pytest.mark.parametrize(
    "block",
    [
        EMPTY_LABEL + bytes(95) + b"k" * 32,  # nothing between padding and message
        EMPTY_LABEL + bytes(10) + b"\2" + bytes(83) + b"\1" + b"k" * 32,  # padding that is not all zeros
        EMPTY_LABEL + b"\2" + bytes(126),
        EMPTY_LABEL + bytes(127),
        bytes([EMPTY_LABEL[0] ^ 1]) + EMPTY_LABEL[1:] + bytes(94) + b"\1" + b"k" * 32,
    ],
    ids=["no separator", "padding", "another separator", "only padding", "label"],
)
def test_every_malformed_block_is_refused_with_the_same_words(block: bytes) -> None:
    key = golden_private_key()
    assert len(block) == 256 - 64 - 1
    with pytest.raises(ValueError, match="^the data key does not decrypt$"):
        unwrap(oaep_encrypted_block(key.public_key(), block), key)


def test_a_block_that_does_not_begin_with_zero_is_refused() -> None:
    key = golden_private_key()
    block = EMPTY_LABEL + bytes(94) + b"\1" + b"k" * 32
    assert unwrap(oaep_encrypted_block(key.public_key(), block), key) == b"k" * 32
    with pytest.raises(ValueError, match="^the data key does not decrypt$"):
        unwrap(oaep_encrypted_block(key.public_key(), block, begin=b"\1"), key)


def oaep_encrypt(key: rsa.RSAPublicKey, message: bytes) -> bytes:
    """RSAES-OAEP encryption with SHA3-512 (RFC 8017, 7.1.1)."""
    padding = bytes((key.key_size + 7) // 8 - 2 * 64 - 2 - len(message))
    return oaep_encrypted_block(key, EMPTY_LABEL + padding + b"\1" + message)


def oaep_encrypted_block(key: rsa.RSAPublicKey, block: bytes, begin: bytes = b"\0") -> bytes:
    """Steps 2.e to 3 of it, for any block; the seed need not be random here."""

    def masked(data: bytes, seed: bytes) -> bytes:
        stream = b"".join(sha3_512(seed + bytes([0, 0, 0, block])).digest() for block in range(8))
        return bytes(a ^ b for a, b in zip(data, stream, strict=False))

    seed = b"s" * 64
    block = masked(block, seed)
    encoded = begin + masked(seed, block) + block
    numbers = key.public_numbers()
    return pow(int.from_bytes(encoded, "big"), numbers.e, numbers.n).to_bytes(len(encoded), "big")
