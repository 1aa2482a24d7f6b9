"""Kafka's `sasl.*` client properties as kafka-python's settings.

`sasl.jaas.config` is one entry of JAAS (Kafka: `JaasConfig`): `<login module class> <flag> key="value" ... ;`, with the
comments and the escapes of Java's `StreamTokenizer`. Its text is a secret: no error shows it.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from dataclasses import dataclass, field
from typing import Any

from tiered_stream.broker.config.property_values import ConfigValues
from tiered_stream.errors import ConfigurationError

_log = logging.getLogger(__name__)

_LOGIN_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "GSSAPI": "Krb5LoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_OPTIONS: dict[str, tuple[str, ...]] = {
    "PLAIN": ("username", "password", "tokenauth"),
    "SCRAM-SHA-256": ("username", "password", "tokenauth"),
    "SCRAM-SHA-512": ("username", "password", "tokenauth"),
    "GSSAPI": ("serviceName",),
    "AWS_MSK_IAM": ("",),
    "OAUTHBEARER": ("clientId", "clientSecret", "scope", "extension_", "ssl.", "unsecuredLogin"),
}
"""What the names of a login module's options begin with, of those that are looked at."""
_OF_ANOTHER_USER = {
    "principal": "get a ticket for it (kinit), and set KRB5CCNAME to where it is",
    "keyTab": "set KRB5_CLIENT_KTNAME to the file",
    "useKeyTab": "set KRB5_CLIENT_KTNAME to the file",
    "ticketCache": "set KRB5CCNAME to the file",
}
"""Options of Java's Kerberos login module that say who logs in, and what does the same here."""
_WITHOUT_JAAS = ("GSSAPI", "AWS_MSK_IAM", "OAUTHBEARER")
"""What they need may be elsewhere."""
_CALLBACK_HANDLERS = {
    "sasl.client.callback.handler.class": {"AWS_MSK_IAM": "IAMClientCallbackHandler"},
    "sasl.login.callback.handler.class": {"OAUTHBEARER": "OAuthBearerLoginCallbackHandler"},
}
_FLAGS = ("required", "requisite", "sufficient", "optional")

_SPACE = re.compile(r"(?:\s+|//[^\n\r]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s"'=;]+))""", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


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
    mechanism = values.choice("sasl.mechanism", _LOGIN_MODULES)
    _check_callback_handlers(values, mechanism)
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "AWS_MSK_IAM":
        if protocol != "SASL_SSL":
            raise ConfigurationError("kafka.sasl.mechanism = 'AWS_MSK_IAM' needs kafka.security.protocol = SASL_SSL")
        # Imported here, as the next: few need it, and what it needs.
        from tiered_stream.broker.config.msk_iam import aws_login

        entry = _jaas_entry(values, mechanism)
        # kafka-python has no setting for it, and passes this one on to every mechanism.
        settings["sasl_oauth_token_provider"] = aws_login(entry.options if entry else {})
    elif mechanism == "OAUTHBEARER":
        from tiered_stream.broker.config.oauthbearer import login_tokens

        entry = _jaas_entry(values, mechanism)
        settings["sasl_oauth_token_provider"] = login_tokens(values, entry.options if entry else {})
    elif mechanism == "GSSAPI":
        settings["sasl_kerberos_service_name"] = _kerberos_service(values, _jaas_entry(values, mechanism))
    else:
        username, settings["sasl_plain_password"] = credentials(values, mechanism)
        if mechanism.startswith("SCRAM"):  # RFC 5802 `saslname`; kafka-python leaves it to its caller
            username = username.replace("=", "=3D").replace(",", "=2C")
        settings["sasl_plain_username"] = username
    return settings


def _check_callback_handlers(values: ConfigValues, mechanism: str) -> None:
    """Java's classes, whose work we do; by the last part of their name, as they have moved between packages."""
    for name, known in _CALLBACK_HANDLERS.items():
        given = values.text(name)
        if given and given.rpartition(".")[2] != known.get(mechanism):
            raise ConfigurationError(
                f"kafka.{name} = {given!r} cannot be used with kafka.sasl.mechanism = {mechanism!r}: Java's classes do "
                "not run here. Remove it; OAUTHBEARER takes tokens from kafka.sasl.oauthbearer.token.provider"
            )


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
    tokens, position = [], _after_space(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed("a quote is not closed")
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            tokens.append((_ESCAPE.sub(_unescaped, quoted), False))
        else:
            tokens.append((match[3] or match[4], match[3] is not None))
        position = _after_space(text, match.end())
    return tokens


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _unescaped(escape: re.Match[str]) -> str:
    char = escape[1]
    return chr(int(char, 8)) if char.isdigit() and char < "8" else _ESCAPES.get(char, char)


def _malformed(why: str) -> ConfigurationError:
    return ConfigurationError(
        f'kafka.sasl.jaas.config: {why}; it reads: <login module class> required username="…" password="…";'
    )


def _jaas_entry(values: ConfigValues, mechanism: str) -> JaasEntry | None:
    text = values.secret("sasl.jaas.config")
    if not text:
        if mechanism in _WITHOUT_JAAS:
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
    for name, value in entry.options.items():
        if mechanism == "GSSAPI" and name in _OF_ANOTHER_USER and value.lower() != "false":
            raise ConfigurationError(
                f"kafka.sasl.jaas.config: {name} is not supported, and without it somebody else may log in: "
                f"{_OF_ANOTHER_USER[name]}, on the driver and on the executors, and remove {name}"
            )
        if not name.startswith(_OPTIONS[mechanism]):
            _log.warning("kafka.sasl.jaas.config: %s has no effect with %s", name, mechanism)
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
