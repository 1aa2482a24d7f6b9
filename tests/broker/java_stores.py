"""Key and trust stores as the JDK's `keytool` makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from tests.broker.certificates import Identity
from tests.rigs.stack.java import java_executable

STORE_PASSWORD, KEY_PASSWORD = "store-secret", "key-secret"


def trust_store(certificate: str, path: Path, kind: str = "JKS", password: str = STORE_PASSWORD) -> Path:
    """One that trusts the certificate (PEM)."""
    given = path.with_suffix(".pem")
    given.write_text(certificate)
    _keytool(
        "-importcert", "-noprompt", "-alias", "authority", "-file", str(given), "-keystore", str(path),
        "-storetype", kind, "-storepass", password,
    )  # fmt: skip
    return path


def key_store(identity: Identity, path: Path, password: str = STORE_PASSWORD, key_password: str = KEY_PASSWORD) -> Path:
    """A JKS store with the identity's key, which has a password of its own."""
    key = load_pem_private_key(identity.key.encode(), None)
    certificate = load_pem_x509_certificate(identity.certificate.encode())
    given = path.with_suffix(".p12")
    sealed = BestAvailableEncryption(password.encode())
    given.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, sealed))  # type: ignore[arg-type]
    _keytool(
        "-importkeystore", "-noprompt", "-srckeystore", str(given), "-srcstoretype", "PKCS12",
        "-srcstorepass", password, "-srcalias", "own", "-destkeystore", str(path), "-deststoretype", "JKS",
        "-deststorepass", password, "-destkeypass", key_password,
    )  # fmt: skip
    return path


def _keytool(*arguments: str) -> None:
    keytool = Path(java_executable()).resolve().with_name("keytool")
    done = subprocess.run([keytool, *arguments], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
