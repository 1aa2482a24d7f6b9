"""Addresses, names and trusted authorities of the namespaces of `namespace.py`.

The loopback interface is the only one. It has the addresses of the clouds' services, and all names are looked up at
a name server of the tests. All programs trust one authority alone.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Collection
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

from tests.broker.certificates import CertificateAuthority

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", certifi.where())
"""Files with the authorities that OpenSSL (Debian, Red Hat), Rust's programs, and Python's libraries trust."""


def set_up(folder: Path, addresses: Collection[str]) -> CertificateAuthority:
    """Give the namespaces these addresses, a name server at 127.0.0.1, and a trusted authority. Return the authority.

    `folder` gets the files that are mounted over the system's.
    """
    for command in ("link set lo up", *(f"address replace {address}/32 dev lo" for address in addresses)):
        subprocess.run(["ip", *command.split()], check=True)
    authority = CertificateAuthority()
    bundle = authority.write(folder / "authority.pem")
    for each in _BUNDLES:
        _mount(bundle, Path(each))
    _mount(_trust_store(authority, folder / "cacerts"), _java_trust_store())
    _mount(_written(folder / "hosts", f"127.0.0.1 localhost {socket.gethostname()}\n"), Path("/etc/hosts"))
    _mount(_written(folder / "resolv.conf", "nameserver 127.0.0.1\n"), Path("/etc/resolv.conf"))
    return authority


def _mount(file: Path, over: Path | None) -> None:
    if over is not None and over.exists():
        subprocess.run(["mount", "--bind", file, over.resolve()], check=True)


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def _java_trust_store() -> Path | None:
    java = shutil.which("java")
    return Path(java).resolve().parent.parent / "lib/security/cacerts" if java else None


def _trust_store(authority: CertificateAuthority, file: Path) -> Path:
    certificate = x509.load_pem_x509_certificate(authority.certificate.encode())
    entries = [pkcs12.PKCS12Certificate(certificate, b"authority")]
    file.write_bytes(pkcs12.serialize_java_truststore(entries, NoEncryption()))
    return file
