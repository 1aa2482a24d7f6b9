"""Kafka's `ssl.*` client properties as an `ssl.SSLContext` (Kafka: `DefaultSslEngineFactory`). PEM stores only."""

from __future__ import annotations

import re
import ssl
import tempfile
from pathlib import Path

from tiered_stream.broker.config.property_values import ConfigValues
from tiered_stream.errors import ConfigurationError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_UNSUPPORTED = ("ssl.engine.factory.class", "ssl.cipher.suites")
_PEM_BLOCK = re.compile(r"(-----BEGIN ([A-Z0-9 ]+)-----)([A-Za-z0-9+/=\s]+)(-----END \2-----)")


def tls_context(values: ConfigValues) -> ssl.SSLContext:
    """The context for connections to brokers: TLS 1.2 or newer, the broker's certificate always verified.

    Raises:
        ConfigurationError: a store is not PEM, is missing or does not load, or a property asks for what OpenSSL
            under Python cannot do.
    """
    for name in _UNSUPPORTED:
        if values.text(name):
            raise ConfigurationError(f"kafka.{name} is not supported: remove it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit_versions(context, values)
    context.check_hostname = values.text("ssl.endpoint.identification.algorithm", "https") != ""
    _load_trust(context, values)
    _load_identity(context, values)
    return context


def _limit_versions(context: ssl.SSLContext, values: ConfigValues) -> None:
    listed = values.text("ssl.enabled.protocols") or ",".join(_VERSIONS)
    versions = [_VERSIONS[name.strip()] for name in listed.split(",") if name.strip() in _VERSIONS]
    if not versions:
        raise ConfigurationError(f"kafka.ssl.enabled.protocols = {listed!r}: must name {' or '.join(_VERSIONS)}")
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _load_trust(context: ssl.SSLContext, values: ConfigValues) -> None:
    certificates = values.secret("ssl.truststore.certificates")
    store = None if certificates else pem_store(values, "truststore")
    try:
        if certificates:
            context.load_verify_locations(cadata=with_line_ends(certificates))
        elif store:
            context.load_verify_locations(cafile=store)
        else:
            context.load_default_certs()
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigurationError(f"kafka.ssl.truststore.*: no certificates could be read: {_reason(error)}") from error


def _load_identity(context: ssl.SSLContext, values: ConfigValues) -> None:
    chain, key = values.secret("ssl.keystore.certificate.chain"), values.secret("ssl.keystore.key")
    if bool(chain) != bool(key):
        raise ConfigurationError("kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain go together")
    store = None if chain else pem_store(values, "keystore")
    # Without a callback OpenSSL would ask for a missing password on the terminal.
    password = values.secret("ssl.key.password") or ""
    try:
        if chain and key:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by its owner only
                file.write(with_line_ends(key) + with_line_ends(chain))
                file.flush()
                context.load_cert_chain(file.name, password=lambda: password)
        elif store:
            context.load_cert_chain(store, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigurationError(
            "kafka.ssl.keystore.*: the private key and its certificate chain could not be read "
            f"(is kafka.ssl.key.password right?): {_reason(error)}"
        ) from error


def pem_store(values: ConfigValues, store: str) -> str | None:
    """The path of a store that is PEM by its type or, where no type is given, by its content; None: none is given."""
    location, kind = values.text(f"ssl.{store}.location"), values.text(f"ssl.{store}.type").upper()
    if not location:
        return None
    path = Path(location)
    if not path.is_file():
        raise ConfigurationError(f"kafka.ssl.{store}.location = {location!r}: there is no such file on this machine")
    if kind not in ("", "PEM") or (not kind and b"-----BEGIN" not in path.read_bytes()):
        raise ConfigurationError(
            f"kafka.ssl.{store}.location = {location!r}, kafka.ssl.{store}.type = {kind or 'JKS'!r}: only PEM stores "
            f"can be read. Convert it (`keytool -importkeystore` to PKCS12, then `openssl pkcs12 -nodes`) and set "
            f"kafka.ssl.{store}.type=PEM"
        )
    return location


def with_line_ends(pem: str) -> str:
    """PEM blocks in the 64-column form OpenSSL insists on; Kafka also takes them on one line."""

    def block(match: re.Match[str]) -> str:
        body = "".join(match[3].split())
        lines = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join((match[1], *lines, match[4])) + "\n"

    return _PEM_BLOCK.sub(block, pem.strip()) + "\n"


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or type(error).__name__)
