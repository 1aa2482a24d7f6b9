"""Conversion of Kafka's `ssl.*` client properties into an `ssl.SSLContext` (Kafka: `DefaultSslEngineFactory`)."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from tiered_stream.broker import kafka_properties as kafka
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.key_stores import StoreType, private_key, store_file, trusted_certificates
from tiered_stream.errors import ConfigurationError

_log = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_OF_TLS_1_3 = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
_SUITE = re.compile(
    r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(128|256)_(?:(GCM)|CBC)_(SHA|SHA256|SHA384)|CHACHA20_POLY1305_SHA256)"
)
_PEM_BLOCK = re.compile(r"(-----BEGIN ([A-Z0-9 ]+)-----)([A-Za-z0-9+/=\s]+)(-----END \2-----)")


def tls_context(values: ConfigValues) -> ssl.SSLContext:
    """Return the TLS context that the `ssl.*` properties describe: TLS 1.2 or newer, certificates always verified.

    Raises:
        ConfigurationError: a store is missing or does not load, or Python's OpenSSL does not support a property's
            value.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    values.read(kafka.SSL_PROTOCOL)
    _limit_versions(context, values)
    _limit_suites(context, values)
    context.check_hostname = values.read(kafka.ENDPOINT_IDENTIFICATION) != ""
    load_trust(context, values)
    _load_identity(context, values)
    return context


def _limit_versions(context: ssl.SSLContext, values: ConfigValues) -> None:
    listed = values.read(kafka.SSL_ENABLED_PROTOCOLS) or kafka.SSL_ENABLED_PROTOCOLS.default
    names = [name.strip() for name in listed.split(",") if name.strip()]
    versions = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if not versions:
        raise ConfigurationError(f"kafka.ssl.enabled.protocols = {listed!r}: must name {' or '.join(_VERSIONS)}")
    if len(versions) < len(names):
        _log.warning("kafka.ssl.enabled.protocols = %r: only %s can be spoken", listed, " and ".join(_VERSIONS))
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _limit_suites(context: ssl.SSLContext, values: ConfigValues) -> None:
    """Limit `context` to the cipher suites in `ssl.cipher.suites`, if this property is set.

    Raises:
        ConfigurationError: the property names only some suites of TLS 1.3, because Python offers all or none of them.
            Or a suite is unknown, or `ssl.enabled.protocols` allows none of the suites.
    """
    listed = values.text("ssl.cipher.suites")
    names = {name.strip() for name in listed.split(",") if name.strip()}
    if not names:
        return
    newer, older = names & _SUITES_OF_TLS_1_3, names - _SUITES_OF_TLS_1_3
    tls_1_3_enabled = context.maximum_version is ssl.TLSVersion.TLSv1_3
    if newer and tls_1_3_enabled and newer != _SUITES_OF_TLS_1_3:
        raise ConfigurationError(
            f"kafka.ssl.cipher.suites = {listed!r}: the suites of TLS 1.3 cannot be chosen one by one here. Name "
            f"all of {', '.join(sorted(_SUITES_OF_TLS_1_3))}, or set kafka.ssl.enabled.protocols=TLSv1.2"
        )
    try:
        if older:
            context.set_ciphers(":".join(map(_openssl_name, sorted(older))))
        elif context.minimum_version is not ssl.TLSVersion.TLSv1_3:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        if not newer:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"kafka.ssl.cipher.suites = {listed!r}: {_reason(error)}") from error
    if context.minimum_version > context.maximum_version:
        raise ConfigurationError(
            f"kafka.ssl.cipher.suites = {listed!r}: none is of a version that kafka.ssl.enabled.protocols names"
        )


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of the cipher suite that Java and the RFCs call `suite`.

    For example, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.
    """
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise ConfigurationError(f"kafka.ssl.cipher.suites: {suite!r} is no cipher suite that is known here")
    exchange, bits, mode, digest = match.groups()
    parts = [exchange.replace("_", "-")] if exchange != "RSA" else []
    parts += [f"AES{bits}", *([mode] if mode else []), digest] if bits else ["CHACHA20-POLY1305"]
    return "-".join(parts)


def load_trust(context: ssl.SSLContext, values: ConfigValues) -> None:
    """Make the context trust the certificates in `ssl.truststore.*`; if none is set, trust the system's authorities.

    As in Java, a certificate in the trust store is trusted even if it is not a root.

    Raises:
        ConfigurationError: the trust store cannot be read, or is given both as a file and as PEM text.
    """
    certificates, store = values.secret("ssl.truststore.certificates"), store_file(values, "truststore")
    if certificates and store:
        raise _both_given("kafka.ssl.truststore.location", "kafka.ssl.truststore.certificates")
    try:
        if certificates:
            check_is_pem(values, "truststore")
            context.load_verify_locations(cadata=with_line_ends(certificates))
        elif store:
            if store.kind is StoreType.PEM:
                context.load_verify_locations(cafile=store.location)
            else:
                context.load_verify_locations(cadata=trusted_certificates(store))
        else:
            context.load_default_certs()
            return
    except ConfigurationError:
        raise
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigurationError(f"kafka.ssl.truststore.*: no certificates could be read: {_reason(error)}") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java: any certificate in the store, not only roots


def _load_identity(context: ssl.SSLContext, values: ConfigValues) -> None:
    identity, store = inline_identity(values), store_file(values, "keystore")
    if identity and store:
        raise _both_given("kafka.ssl.keystore.location", "kafka.ssl.keystore.key")
    if store and store.kind is not StoreType.PEM:
        identity = private_key(store, values)
    if not (identity or store):
        return
    # Without a callback OpenSSL would ask for a missing password on the terminal.
    password = values.secret("ssl.key.password") or ""
    try:
        with _file_of("".join(identity).encode() if identity else store.content if store else b"") as path:
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigurationError(
            "kafka.ssl.keystore.*: the private key and its certificate chain could not be read "
            f"(is kafka.ssl.key.password right?): {_reason(error)}"
        ) from error


def inline_identity(values: ConfigValues) -> tuple[str, str] | None:
    """Return the private key and the certificate chain that the settings contain as PEM texts; None: neither is set.

    Raises:
        ConfigurationError: only the key or only the chain is given, or `ssl.keystore.type` is not PEM.
    """
    chain, key = values.secret("ssl.keystore.certificate.chain"), values.secret("ssl.keystore.key")
    if bool(chain) != bool(key):
        raise ConfigurationError("kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain go together")
    if not (chain and key):
        return None
    check_is_pem(values, "keystore")
    return with_line_ends(key), with_line_ends(chain)


def check_is_pem(values: ConfigValues, name: str) -> None:
    """Check that `ssl.NAME.type` is PEM or is not given, because only PEM text can be written into a property.

    `name` stands for NAME: `keystore` or `truststore`.

    Raises:
        ConfigurationError: `ssl.NAME.type` is another type.
    """
    kind = values.text(f"ssl.{name}.type").upper()
    if kind not in ("", StoreType.PEM):
        raise ConfigurationError(f"kafka.ssl.{name}.type = {kind!r}: only PEM can be given in the settings themselves")


@contextmanager
def _file_of(secret: bytes) -> Iterator[str]:
    """Yield the path of a file in memory with the secret, for OpenSSL, and remove the file at the end of the block."""
    with open(os.memfd_create("tiered-stream"), "wb") as file:
        file.write(secret)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _both_given(first: str, second: str) -> ConfigurationError:
    return ConfigurationError(f"{first} and {second} are both given: keep one")


def with_line_ends(pem: str) -> str:
    """Return PEM blocks with lines of 64 characters, as OpenSSL requires. Kafka also accepts blocks on one line."""

    def block(match: re.Match[str]) -> str:
        body = "".join(match[3].split())
        lines = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join((match[1], *lines, match[4])) + "\n"

    return _PEM_BLOCK.sub(block, pem.strip()) + "\n"


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or type(error).__name__)
