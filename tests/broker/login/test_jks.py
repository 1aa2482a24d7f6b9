from __future__ import annotations

import contextlib

import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key
from cryptography.x509 import load_der_x509_certificate

from tests.golden import STORES
from tiered_stream.broker.login.key_stores import JksStore, read_jks
from tiered_stream.errors import ConfigurationError

KEY, TRUST = (STORES / "key.jks").read_bytes(), (STORES / "trust.jks").read_bytes()


def test_a_key_store_of_keytool_gives_the_key_that_its_certificate_is_for() -> None:
    (entry,) = read_jks(KEY, "store-secret").keys

    key = load_der_private_key(entry.decrypt("key-secret"), None)

    assert entry.alias == "client"
    assert key.public_key() == load_der_x509_certificate(entry.chain[0]).public_key()


def test_a_trust_store_of_keytool_gives_its_certificates_with_or_without_the_password() -> None:
    for password in ("store-secret", None):
        (certificate,) = read_jks(TRUST, password).certificates
        assert load_der_x509_certificate(certificate).subject.rfc4514_string() == "CN=client"


@pytest.mark.parametrize("password", ["", "Store-secret", "\ud800", "key-secret"])
def test_a_wrong_password_opens_nothing(password: str) -> None:
    with pytest.raises(ConfigurationError, match="password"):
        read_jks(KEY, password)


def test_a_store_of_which_one_byte_was_changed_is_not_opened() -> None:
    for position in range(len(TRUST)):
        changed = bytearray(TRUST)
        changed[position] ^= 1
        with pytest.raises(ConfigurationError):
            read_jks(bytes(changed), "store-secret")


def test_a_store_that_is_cut_anywhere_is_refused_or_read_without_its_password() -> None:
    for size in range(len(KEY)):
        with contextlib.suppress(ConfigurationError):
            assert isinstance(read_jks(KEY[:size], None), JksStore)


def test_a_count_of_entries_beyond_the_file_costs_nothing() -> None:
    with pytest.raises(ConfigurationError, match="cut off"):
        read_jks(TRUST[:8] + b"\xff" * 4 + TRUST[12:], None)


def test_neither_key_nor_certificates_are_in_the_repr() -> None:
    assert repr(read_jks(KEY, "store-secret").keys) == "(JksKey(alias='client'),)"
