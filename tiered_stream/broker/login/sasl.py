"""Conversion of Kafka's `sasl.*` client properties into kafka-python's settings.

`sasl.jaas.config` is one JAAS entry (Kafka: `JaasConfig`): `<login module class> <flag> key="value" ... ;`, with the
comments and the escapes of Java's `StreamTokenizer`. The entry is a secret: no error shows its text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tiered_stream.broker import kafka_properties as kafka
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.errors import ConfigurationError

_log = logging.getLogger(__name__)

_USER_OPTIONS = ("username", "password", "tokenauth")
_LOGIN_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "PLAIN": ("PlainLoginModule", _USER_OPTIONS),
    "SCRAM-SHA-256": ("ScramLoginModule", _USER_OPTIONS),
    "SCRAM-SHA-512": ("ScramLoginModule", _USER_OPTIONS),
    "GSSAPI": ("Krb5LoginModule", ("serviceName", "principal", "keyTab", "useKeyTab", "ticketCache", "useTicketCache")),
    "AWS_MSK_IAM": ("IAMLoginModule", ("",)),
    "OAUTHBEARER": (
        "OAuthBearerLoginModule", ("clientId", "clientSecret", "scope", "extension_", "ssl.", "unsecuredLogin")
    ),
}  # fmt: skip
"""Login module of each SASL mechanism, and the prefixes of the module's options that have an effect."""
_CALLBACK_HANDLERS = {
    "sasl.client.callback.handler.class": {"AWS_MSK_IAM": "IAMClientCallbackHandler"},
    "sasl.login.callback.handler.class": {"OAUTHBEARER": "OAuthBearerLoginCallbackHandler"},
}
_FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""(?>(?:\s+|//[^\n\r]*|/\*.*?\*/)*)(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s"'=;]+)|\Z)""",
    re.DOTALL,
)
"""Pattern of one token and the blanks and comments before it.

The token is a quoted word, one of the marks `=` and `;`, an unquoted word, or the end of the text.
"""
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """JAAS entry: the class of a login module, and the module's options.

    The options may hold a password, so they are not in the repr.
    """

    login_module: str
    options: dict[str, str] = field(repr=False)


def sasl_settings(values: ConfigValues, protocol: str) -> dict[str, Any]:
    """Return the settings of kafka-python's KafkaConnectionManager for the mechanism in the property `sasl.mechanism`.

    Kafka's default is GSSAPI. `values` are the client properties, and `protocol` is the security protocol.

    Raises:
        ConfigurationError: the mechanism cannot be used here, or `sasl.jaas.config` is missing or is for another
            mechanism.
    """
    mechanism = values.read(kafka.SASL_MECHANISM)
    _check_callback_handlers(values, mechanism)
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "AWS_MSK_IAM" and protocol != "SASL_SSL":
        raise ConfigurationError("kafka.sasl.mechanism = 'AWS_MSK_IAM' needs kafka.security.protocol = SASL_SSL")
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        username, settings["sasl_plain_password"] = credentials(values, mechanism)
        if mechanism != "PLAIN":  # RFC 5802 escapes a `saslname`; kafka-python does not
            username = username.replace("=", "=3D").replace(",", "=2C")
        settings["sasl_plain_username"] = username
        return settings
    options = _jaas_options(values, mechanism)
    if mechanism == "AWS_MSK_IAM":
        # This import and the next two are here, because few users need these modules and their libraries.
        from tiered_stream.broker.login.aws_login import aws_login

        # kafka-python has no setting for AWS logins, but passes this one to every mechanism.
        settings["sasl_oauth_token_provider"] = aws_login(options)
    elif mechanism == "OAUTHBEARER":
        from tiered_stream.broker.login.oauthbearer import login_tokens

        settings["sasl_oauth_token_provider"] = login_tokens(values, options)
    else:
        from tiered_stream.broker.login.kerberos import KerberosLogin, kerberos_identity

        identity = kerberos_identity(options)
        settings["sasl_oauth_token_provider"] = KerberosLogin(identity, _kerberos_service(values, options))
    return settings


def _check_callback_handlers(values: ConfigValues, mechanism: str) -> None:
    """Check that each callback handler in the properties is a class that this package replaces for `mechanism`.

    Only the last part of a class name is compared, because the classes have moved between packages.

    Raises:
        ConfigurationError: a callback handler is another class.
    """
    for name, replaced in _CALLBACK_HANDLERS.items():
        handler = values.text(name)
        if handler and handler.rpartition(".")[2] != replaced.get(mechanism):
            raise ConfigurationError(
                f"kafka.{name} = {handler!r} cannot be used with kafka.sasl.mechanism = {mechanism!r}: Java's classes "
                "do not run here. Remove it; OAUTHBEARER takes tokens from kafka.sasl.oauthbearer.token.provider"
            )


def credentials(values: ConfigValues, mechanism: str) -> tuple[str, str]:
    """Return the user's name and password in `sasl.jaas.config`, for the mechanism PLAIN or SCRAM.

    Raises:
        ConfigurationError: the property is missing, is for another mechanism, lacks the name or the password, or asks
            for a delegation token.
    """
    options = _jaas_options(values, mechanism)
    if options.get("tokenauth", "false").lower() == "true":
        raise ConfigurationError("kafka.sasl.jaas.config: delegation tokens (tokenauth) are not supported")
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigurationError(f"kafka.sasl.jaas.config: {mechanism} needs {name}")
    return options["username"], options["password"]


def parse_jaas(text: str) -> JaasEntry:
    """Parse one JAAS entry.

    Raises:
        ConfigurationError: the text is not a JAAS entry. The message does not contain the text.
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
    """Split a JAAS entry into pairs: a token, and true if the token is the mark `=` or `;` outside of quotes."""
    tokens, position = [], 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            tokens.append((_ESCAPE.sub(_unescaped, quoted), False))
        elif match[3] or match[4]:
            tokens.append((match[3] or match[4], match[3] is not None))
        else:
            return tokens
    raise _malformed("a quote is not closed")


def _unescaped(escape: re.Match[str]) -> str:
    char = escape[1]
    return chr(int(char, 8)) if char.isdigit() and char < "8" else _ESCAPES.get(char, char)


def _malformed(why: str) -> ConfigurationError:
    return ConfigurationError(
        f'kafka.sasl.jaas.config: {why}; it reads: <login module class> required username="…" password="…";'
    )


def _jaas_options(values: ConfigValues, mechanism: str) -> dict[str, str]:
    """Return the login module's options in `sasl.jaas.config`.

    The result is empty if the property is missing and the mechanism does not need it.

    Raises:
        ConfigurationError: the property is malformed, is for another mechanism, or is missing but needed.
    """
    text = values.secret("sasl.jaas.config")
    login_module, effective_options = _LOGIN_MODULES[mechanism]
    if not text:
        if effective_options is not _USER_OPTIONS:
            return {}
        raise ConfigurationError(
            f"kafka.sasl.jaas.config is missing: {mechanism} needs {login_module} with username and password there (a "
            "JAAS file of the JVM is not read)"
        )
    entry = parse_jaas(text)
    # A shaded Kafka client has the class in another package, so only the last part of its name is compared.
    if entry.login_module.rpartition(".")[2] != login_module:
        raise ConfigurationError(f"kafka.sasl.jaas.config: kafka.sasl.mechanism = {mechanism!r} needs {login_module}")
    for name in entry.options:
        if not name.startswith(effective_options):
            _log.warning("kafka.sasl.jaas.config: %s has no effect with %s", name, mechanism)
    return entry.options


def _kerberos_service(values: ConfigValues, options: Mapping[str, str]) -> str:
    service = values.text("sasl.kerberos.service.name") or options.get("serviceName", "")
    if not service:
        raise ConfigurationError("kafka.sasl.kerberos.service.name is missing: GSSAPI needs the brokers' service name")
    return service
