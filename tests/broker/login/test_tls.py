from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority
from tests.golden import STORES
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.tls import tls_context
from tiered_stream.errors import ConfigurationError

STORE = "store-secret"


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def context(**properties: str) -> ssl.SSLContext:
    return tls_context(ConfigValues({f"ssl.{name.replace('_', '.')}": value for name, value in properties.items()}))


def test_certificates_and_host_names_are_verified_unless_told_otherwise() -> None:
    default, unnamed = context(), context(endpoint_identification_algorithm="")

    assert (default.verify_mode, default.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_a_pem_trust_store_is_loaded_with_or_without_its_type(authority: CertificateAuthority, tmp_path: Path) -> None:
    store = str(authority.write(tmp_path / "trust.pem"))

    assert len(context(truststore_location=store).get_ca_certs()) == 1
    assert len(context(truststore_location=store, truststore_type="PEM").get_ca_certs()) == 1


def test_certificates_may_be_given_on_one_line(authority: CertificateAuthority) -> None:
    assert len(context(truststore_certificates=" ".join(authority.certificate.split("\n"))).get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("kind", "content"), [("PKCS12", b"-----BEGIN"), ("PEM", b"\xfe\xed\xfe\xed"), ("BKS", b"\x30")]
)
def test_a_store_of_another_type_than_its_content_is_refused(tmp_path: Path, kind: str, content: bytes) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(content)

    with pytest.raises(ConfigurationError, match=rf"kafka\.ssl\.truststore\.type = '{kind}': ") as raised:
        context(truststore_location=str(store), truststore_type=kind)

    assert str(store) in str(raised.value)


@pytest.mark.parametrize("kind", ["", "JKS", "PKCS12", "pkcs12"])
@pytest.mark.parametrize("store", ["trust.jks", "trust.p12"])
def test_java_trust_stores_are_opened_with_their_password_whatever_of_the_two_types_is_given(
    kind: str, store: str
) -> None:
    given = {"truststore_location": str(STORES / store), "truststore_password": "store-secret"}

    found = context(**given, truststore_type=kind)

    assert found.cert_store_stats()["x509"] == 1
    assert found.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


@pytest.mark.parametrize(("store", "key_password"), [("key.jks", "key-secret"), ("key.p12", ""), ("key.p12", STORE)])
def test_java_key_stores_are_opened_with_their_passwords(store: str, key_password: str) -> None:
    given = {"key_password": key_password} if key_password else {}

    context(keystore_location=str(STORES / store), keystore_password="store-secret", **given)


@pytest.mark.parametrize("kind", ["jks", "p12"])
@pytest.mark.parametrize(
    ("store", "given", "named"),
    [
        ("key", {}, "keystore"),
        ("key", {"keystore_password": "hunter2"}, "keystore"),
        ("key", {"keystore_password": "store-secret", "key_password": "hunter2"}, "key"),
        ("trust", {"truststore_password": "hunter2"}, "truststore"),
    ],
)
def test_a_missing_or_wrong_password_of_a_store_names_the_setting(
    kind: str, store: str, given: dict[str, str], named: str
) -> None:
    location = str(STORES / f"{store}.{kind}")
    with pytest.raises(ConfigurationError, match=rf"kafka\.ssl\.{named}\.password") as raised:
        context(**{f"{store}store_location": location, **given})
    assert f"{store}.{kind}" in str(raised.value) and "hunter2" not in str(raised.value)


def test_a_key_store_that_has_no_key_and_a_trust_store_that_has_no_certificate_say_so() -> None:
    for store, empty in (("keystore", "trust.jks"), ("truststore", "key.jks")):
        with pytest.raises(
            ConfigurationError, match=rf"kafka.ssl.{store}.location = .*{empty}.* it has (0 priv|no trus)"
        ):
            context(**{f"{store}_location": str(STORES / empty), f"{store}_password": "store-secret"})


def test_a_file_that_is_no_store_or_too_large_for_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no store")
    for location in (str(tmp_path / "text"), "/dev/zero"):
        with pytest.raises(
            ConfigurationError, match=rf"kafka\.ssl\.truststore\.location = .*{location}.* PEM, PKCS12, JKS"
        ):
            context(truststore_location=location)


def test_a_store_that_is_given_in_two_ways_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    identity, trust = authority.issue("client"), str(authority.write(tmp_path / "trust.pem"))
    key = str(identity.write(tmp_path / "key.pem"))
    in_place = {"keystore_key": identity.key, "keystore_certificate_chain": identity.certificate}

    for given in (
        {"truststore_location": trust, "truststore_certificates": authority.certificate},
        {"keystore_location": key, **in_place},
    ):
        with pytest.raises(ConfigurationError, match="both"):
            context(**given)


def test_what_is_given_in_place_is_pem(authority: CertificateAuthority) -> None:
    identity = authority.issue("client")
    for given in (
        {"truststore_type": "JKS", "truststore_certificates": authority.certificate},
        {"keystore_type": "PKCS12", "keystore_key": identity.key, "keystore_certificate_chain": identity.certificate},
    ):
        with pytest.raises(ConfigurationError, match="PEM"):
            context(**given)


def test_no_key_ever_touches_a_disk(authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_files(*_: object, **__: object) -> None:
        raise AssertionError("a file on a disk")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", no_files)
    identity = authority.issue("client")

    context(keystore_key=identity.key, keystore_certificate_chain=identity.certificate)
    context(keystore_location=str(STORES / "key.p12"), keystore_password="store-secret")


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.ssl\.keystore\.location = .*gone\.pem.*no such file"):
        context(keystore_location=str(tmp_path / "gone.pem"))


def test_a_trust_store_without_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"kafka.ssl.truststore"):
        context(truststore_certificates="-----BEGIN CERTIFICATE----- AAAA -----END CERTIFICATE-----")


def test_an_encrypted_key_needs_its_password(authority: CertificateAuthority, tmp_path: Path) -> None:
    store = str(authority.issue("client", password="hunter2").write(tmp_path / "key.pem"))

    context(keystore_location=store, key_password="hunter2")
    for wrong in ({}, {"key_password": "hunter3"}):
        with pytest.raises(ConfigurationError, match=r"kafka.ssl.key.password") as raised:
            context(keystore_location=store, **wrong)
        assert "hunter" not in str(raised.value)


def test_key_and_chain_may_be_given_in_place_but_only_together(authority: CertificateAuthority) -> None:
    identity = authority.issue("client")

    context(keystore_key=identity.key, keystore_certificate_chain=identity.certificate)
    with pytest.raises(ConfigurationError, match="go together"):
        context(keystore_key=identity.key)


def test_only_the_listed_tls_versions_are_spoken() -> None:
    only = context(enabled_protocols="TLSv1.3")

    assert (only.minimum_version, only.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
    assert context(enabled_protocols="TLSv1.1,TLSv1.2").maximum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ConfigurationError, match=r"kafka.ssl.enabled.protocols = 'TLSv1'"):
        context(enabled_protocols="TLSv1")


def test_older_tls_versions_in_the_list_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    context(enabled_protocols="TLSv1.1,TLSv1.2")

    assert caplog.messages == [
        "kafka.ssl.enabled.protocols = 'TLSv1.1,TLSv1.2': only TLSv1.2 and TLSv1.3 can be spoken"
    ]


def suites(found: ssl.SSLContext) -> set[str]:
    return {each["name"] for each in found.get_ciphers() if each["protocol"] != "TLSv1.3"}


def test_cipher_suites_have_javas_names_and_without_one_of_tls_1_3_that_is_not_spoken() -> None:
    found = context(cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_DHE_RSA_WITH_AES_128_CBC_SHA256")

    assert suites(found) == {"ECDHE-RSA-AES256-GCM-SHA384", "DHE-RSA-AES128-SHA256"}
    assert found.maximum_version == ssl.TLSVersion.TLSv1_2
    chacha = context(cipher_suites="TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")
    assert suites(chacha) == {"ECDHE-ECDSA-CHACHA20-POLY1305"}


def test_with_all_suites_of_tls_1_3_and_no_other_only_that_is_spoken() -> None:
    newer = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"

    assert context(cipher_suites=newer).minimum_version == ssl.TLSVersion.TLSv1_3
    both = context(cipher_suites=f"{newer},TLS_RSA_WITH_AES_256_GCM_SHA384")
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("listed", "protocols"),
    [
        ("TLS_AES_256_GCM_SHA384", "TLSv1.2,TLSv1.3"),
        ("TLS_NULL_WITH_NULL_NULL", "TLSv1.2"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLSv1.3"),
        ("TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256", "TLSv1.2"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA384", "TLSv1.2"),
    ],
)
def test_cipher_suites_that_cannot_be_had_are_refused(listed: str, protocols: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.ssl\.cipher\.suites"):
        context(cipher_suites=listed, enabled_protocols=protocols)


@pytest.mark.parametrize(("name", "value"), [("protocol", "SSLv3"), ("endpoint_identification_algorithm", "ldaps")])
def test_words_that_mean_nothing_here_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kafka\.ssl\.{name.replace('_', '.')} = '{value}'"):
        context(**{name: value})


@pytest.mark.parametrize("location", ["x" * 5000, "a\0b", "/"])
def test_a_store_whose_path_is_none_is_refused(location: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka.ssl.truststore.location = .*no such file"):
        context(truststore_location=location)
