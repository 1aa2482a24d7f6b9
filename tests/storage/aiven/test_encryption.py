from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.archives import TRANSFORMED
from tests.golden import golden
from tests.storage.golden_aiven import big_segment, options
from tiered_stream.errors import ConfigurationError, CorruptDataError, StorageAccessError
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.storage.aiven.encryption import load_key_ring, unwrap
from tiered_stream.storage.aiven.manifest import SegmentEncryption
from tiered_stream.storage.open_fetcher import open_fetcher


def key_file(folder: Path, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    path = folder / "another.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(path)


def another_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def encrypted(key: rsa.RSAPrivateKey, data_key: bytes) -> bytes:
    """The data key as Aiven's plugin encrypts it."""
    public = key.public_key().public_numbers()
    return PKCS1_OAEP.new(RSA.construct((public.n, public.e)), hashAlgo=SHA3_512).encrypt(data_key)


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
    ring.cipher(SegmentEncryption("OTHER", encrypted(key, b"k" * 32), b"aad"), "the manifest")


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


def test_a_data_key_of_a_size_that_aes_does_not_have_is_refused(tmp_path: Path) -> None:
    key = another_key()
    ring = load_key_ring(with_keys(key1=key_file(tmp_path, key)))
    with pytest.raises(CorruptDataError, match="data key"):
        ring.cipher(encryption(encrypted(key, b"seventeen bytes!!")), "the manifest")
    ring.cipher(encryption(encrypted(key, b"k" * 32)), "the manifest")


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
    with pytest.raises(ValueError, match="Incorrect decryption"):
        unwrap(base64.b64decode(VECTORS[padding]), golden_private_key())
