from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority
from tiered_stream.broker.config.property_values import ConfigValues
from tiered_stream.broker.config.tls import tls_context
from tiered_stream.errors import ConfigurationError


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


@pytest.mark.parametrize(("kind", "content"), [("JKS", b"\xfe\xed"), ("", b"\xfe\xed"), ("PKCS12", b"-----BEGIN")])
def test_a_store_that_is_not_pem_says_how_to_convert_it(tmp_path: Path, kind: str, content: bytes) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"only PEM stores.*keytool.*kafka.ssl.truststore.type=PEM") as raised:
        context(truststore_location=str(store), truststore_type=kind)

    assert str(store) in str(raised.value)


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka.ssl.keystore.location = .*gone.pem.*no such file"):
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


@pytest.mark.parametrize("name", ["engine_factory_class", "cipher_suites"])
def test_what_openssl_cannot_honour_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kafka\.ssl\.{name.replace('_', '.')} is not supported"):
        context(**{name: "x"})
