"""Kafka's `sasl.*` client properties as kafka-python's settings.

`sasl.jaas.config` is one entry of JAAS (Kafka: `JaasConfig`): `<login module class> <flag> key="value" ... ;`.
Its text is a secret: no error shows it.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from typing import Any

from tiered_stream.broker.config.property_values import ConfigValues
from tiered_stream.errors import ConfigurationError

_LOGIN_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "GSSAPI": "Krb5LoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
}
_MECHANISMS = (*_LOGIN_MODULES, "OAUTHBEARER")
_FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s"'=;]+))""", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module's class and its options; the options hold the password."""

    login_module: str
    options: dict[str, str] = field(repr=False)


def sasl_settings(values: ConfigValues, protocol: str) -> dict[str, Any]:
    """What KafkaConnectionManager wants to know for the mechanism of `sasl.mechanism` (Kafka's default: GSSAPI).

    Raises:
        ConfigurationError: the mechanism cannot be used here, or `sasl.jaas.config` is missing or not for it.
    """
    mechanism = values.choice("sasl.mechanism", "GSSAPI", _MECHANISMS)
    if mechanism == "OAUTHBEARER":
        raise ConfigurationError(
            "kafka.sasl.mechanism = 'OAUTHBEARER' is not supported: use PLAIN, SCRAM, GSSAPI, AWS_MSK_IAM or TLS "
            "client certificates"
        )
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "AWS_MSK_IAM":
        _jaas_entry(values, mechanism)
        if protocol != "SASL_SSL":
            raise ConfigurationError("kafka.sasl.mechanism = 'AWS_MSK_IAM' needs kafka.security.protocol = SASL_SSL")
    elif mechanism == "GSSAPI":
        settings["sasl_kerberos_service_name"] = _kerberos_service(values, _jaas_entry(values, mechanism))
    else:
        username, settings["sasl_plain_password"] = credentials(values, mechanism)
        if mechanism.startswith("SCRAM"):  # RFC 5802 `saslname`; kafka-python leaves it to its caller
            username = username.replace("=", "=3D").replace(",", "=2C")
        settings["sasl_plain_username"] = username
    return settings


def credentials(values: ConfigValues, mechanism: str) -> tuple[str, str]:
    """The user's name and password for PLAIN or SCRAM, as `sasl.jaas.config` has them.

    Raises:
        ConfigurationError: it is missing, not for the mechanism, or lacks one of them.
    """
    entry = _jaas_entry(values, mechanism)
    options = entry.options if entry else {}
    if options.get("tokenauth", "false").lower() == "true":
        raise ConfigurationError("kafka.sasl.jaas.config: delegation tokens (tokenauth) are not supported")
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigurationError(f"kafka.sasl.jaas.config: {mechanism} needs {name}")
    return options["username"], options["password"]


def parse_jaas(text: str) -> JaasEntry:
    """Reads one JAAS entry.

    Raises:
        ConfigurationError: it is not one; the message does not show it.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True) or (";", True) in tokens[:-1]:
        raise _malformed("it must be one entry that ends in a semicolon")
    (login_module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise _malformed("after the login module's class comes `required`")
    triples = [rest[start : start + 3] for start in range(0, len(rest), 3)]
    if any(len(triple) != 3 or triple[0][1] or triple[1] != ("=", True) or triple[2][1] for triple in triples):
        raise _malformed('options are written key="value", without commas')
    return JaasEntry(login_module, {key: value for (key, _), _, (value, _) in triples})


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words, and whether each is a mark (`=` or `;` outside quotes)."""
    tokens, position, text = [], 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed("a quote is not closed")
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            word = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted, flags=re.DOTALL)
            tokens.append((word, False))
        else:
            tokens.append((match[3] or match[4], match[3] is not None))
        position = match.end()
    return tokens


def _malformed(why: str) -> ConfigurationError:
    return ConfigurationError(
        f'kafka.sasl.jaas.config: {why}; it reads: <login module class> required username="…" password="…";'
    )


def _jaas_entry(values: ConfigValues, mechanism: str) -> JaasEntry | None:
    text = values.secret("sasl.jaas.config")
    if not text:
        if mechanism in ("GSSAPI", "AWS_MSK_IAM"):
            return None
        raise ConfigurationError(
            f"kafka.sasl.jaas.config is missing: {mechanism} needs {_LOGIN_MODULES[mechanism]} with username and "
            "password there (a JAAS file of the JVM is not read)"
        )
    entry = parse_jaas(text)
    # The class may carry another package where Kafka's client is shaded, so its last part decides.
    if entry.login_module.rpartition(".")[2] != _LOGIN_MODULES[mechanism]:
        raise ConfigurationError(
            f"kafka.sasl.jaas.config: kafka.sasl.mechanism = {mechanism!r} needs {_LOGIN_MODULES[mechanism]}"
        )
    return entry


def _kerberos_service(values: ConfigValues, entry: JaasEntry | None) -> str:
    if importlib.util.find_spec("gssapi") is None:
        raise ConfigurationError(
            "kafka.sasl.mechanism = 'GSSAPI' (Kafka's default) needs the Python package `gssapi`: install it, or set "
            "the mechanism that the brokers expect"
        )
    service = values.text("sasl.kerberos.service.name") or (entry.options.get("serviceName", "") if entry else "")
    if not service:
        raise ConfigurationError("kafka.sasl.kerberos.service.name is missing: GSSAPI needs the brokers' service name")
    return service
