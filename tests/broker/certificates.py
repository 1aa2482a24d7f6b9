"""A test's own certificate authority: PEM texts and files for brokers and clients."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=2)


@dataclass(frozen=True)
class Identity:
    """A private key (PKCS#8, encrypted when made with a password) and its certificate, both PEM."""

    key: str
    certificate: str

    def write(self, path: Path) -> Path:
        """One file with both, as Kafka's PEM key stores are."""
        path.write_text(self.key + self.certificate)
        return path


# From Python 3.13 on, a certificate must say by which key it was signed, and that key's what it is for.
_SIGNS = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


class CertificateAuthority:
    """Signs identities for 127.0.0.1; its own certificate is the trust store."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = _pem(
            _builder(self._name, self._name, self._key.public_key())
            .not_valid_after(datetime.datetime.now(datetime.UTC) + LIFETIME)
            .add_extension(constraints, critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def __getstate__(self) -> dict[str, object]:
        """Describe it to another process: the key as PEM, because a key object cannot be pickled."""
        return {"key": _key_pem(self._key), "certificate": self.certificate}

    def __setstate__(self, state: dict[str, str]) -> None:
        key = serialization.load_pem_private_key(state["key"].encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key, self.certificate, self._name = key, state["certificate"], _name("authority")

    def issue(
        self, name: str, password: str = "", host: str = "127.0.0.1", ends: datetime.timedelta = LIFETIME,
        names: Sequence[str] = (),
    ) -> Identity:  # fmt: skip
        """`ends`: from now; before now, it has expired. `names`: DNS names and wildcards, instead of the address."""
        key = ec.generate_private_key(ec.SECP256R1())
        dns_names = [x509.DNSName(each) for each in names]
        hosts = x509.SubjectAlternativeName(dns_names or [x509.IPAddress(ipaddress.ip_address(host))])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(_name(name), self._name, key.public_key())
            .not_valid_after(datetime.datetime.now(datetime.UTC) + ends)
            .add_extension(hosts, critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Identity(_key_pem(key, password), _pem(certificate))

    def write(self, path: Path) -> Path:
        path.write_text(self.certificate)
        return path


def server_context(identity: Path) -> ssl.SSLContext:
    """TLS of a server with the identity in this file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)
    return context


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str = "") -> str:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
