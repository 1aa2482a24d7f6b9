"""Sources of tokens for logins, from Kafka's `sasl.oauthbearer.*` and `sasl.login.*` client properties.

As in Kafka's `DefaultJwtRetriever`, tokens come from an `http(s)` endpoint for client credentials, or from a `file:`
URL. A Python function takes the place of a Java callback handler.
"""

from __future__ import annotations

import base64
import importlib
import re
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from tiered_stream.broker.login.key_stores import read_file
from tiered_stream.broker.login.login_tokens import LoginTokens, Token, read_token
from tiered_stream.broker.login.renewed_login import Refresh
from tiered_stream.broker.login.tls import tls_context
from tiered_stream.broker.login.token_endpoint import TokenEndpoint
from tiered_stream.broker.properties import property_table as kafka
from tiered_stream.broker.properties.property_values import ConfigValues
from tiered_stream.errors import BrokerUnavailableError, ConfigurationError

_PROVIDER = "sasl.oauthbearer.token.provider"
_URL = "sasl.oauthbearer.token.endpoint.url"
_RETRIEVERS = ("", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_CREDENTIALS = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
"""Properties of Kafka 4.1 that take precedence over an option in `sasl.jaas.config`, by the option's name."""
_EXTENSION = "extension_"
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"(?!auth$)[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_FILE_BYTES = 1 << 20


def login_tokens(values: ConfigValues, options: Mapping[str, str]) -> LoginTokens:
    """Return the token provider of one client. `options` are the login module's options in `sasl.jaas.config`.

    Raises:
        ConfigurationError: no setting names a source of tokens, or the settings are malformed or incomplete.
    """
    _check_options(options)
    refresh = Refresh(
        values.read(kafka.REFRESH_WINDOW_FACTOR),
        values.read(kafka.REFRESH_WINDOW_JITTER),
        values.read(kafka.INTEGERS["sasl.login.refresh.min.period.seconds"]),
        values.read(kafka.INTEGERS["sasl.login.refresh.buffer.seconds"]),
    )
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    origin, obtain = _source(values, options)
    return LoginTokens(origin, obtain, refresh, extensions)


def _check_options(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name.startswith("unsecuredLogin"):
            raise ConfigurationError(f"kafka.sasl.jaas.config: {name}: unsecured tokens are not supported")
        if name.startswith(_EXTENSION):
            key = name.removeprefix(_EXTENSION)
            if not _EXTENSION_NAME.fullmatch(key) or not _EXTENSION_VALUE.fullmatch(value):
                raise ConfigurationError(f"kafka.sasl.jaas.config: {name} is no SASL extension (RFC 7628)")


def _source(values: ConfigValues, options: Mapping[str, str]) -> tuple[str, Callable[[], Token]]:
    """Return the setting that names the source of tokens, for errors, and a function that requests a new token.

    Raises:
        ConfigurationError: no setting names a source, or a setting is malformed or not supported.
    """
    retriever = values.text("sasl.oauthbearer.jwt.retriever.class")
    if retriever.rpartition(".")[2] not in _RETRIEVERS:
        raise ConfigurationError(
            f"kafka.sasl.oauthbearer.jwt.retriever.class = {retriever!r}: Java's classes do not run here; there are "
            f"{', '.join(_RETRIEVERS[1:])}, and kafka.{_PROVIDER}"
        )
    if provider := values.text(_PROVIDER):
        if values.text(_URL):
            raise ConfigurationError(f"kafka.{_PROVIDER} and kafka.{_URL} are both given: keep one")
        origin = f"kafka.{_PROVIDER} = {provider!r}"
        return origin, partial(_from_callable, origin, _callable(origin, provider))
    url = values.text(_URL)
    if not url:
        raise ConfigurationError(f"kafka.{_URL} is missing: OAUTHBEARER needs it, or kafka.{_PROVIDER}")
    origin, scheme = _checked_url(url)
    if scheme == "file":
        path = unquote(urlsplit(url).path)
        return origin, lambda: read_token(origin, read_file(origin, path, _FILE_BYTES).decode("ascii", "replace"))
    return origin, _endpoint(values, options, origin, url).obtain


def _checked_url(url: str) -> tuple[str, str]:
    """Check the token endpoint's URL. Return the setting with the URL (one text, for errors), and the URL's scheme.

    The text leaves out the URL's query, because a query may be a secret.

    Raises:
        ConfigurationError: the URL is malformed, contains a user or a password, or has another scheme than http, https
            and file.
    """
    try:
        parts = urlsplit(url)
        has_credentials = parts.username is not None or parts.password is not None
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise ConfigurationError(f"kafka.{_URL}: the value is no URL") from None
    if has_credentials:
        raise ConfigurationError(f"kafka.{_URL}: the value must be without a user and a password")
    if parts.scheme == "file" and parts.path.startswith("/") and parts.netloc in ("", "localhost"):
        return f"kafka.{_URL} = 'file://{parts.path}'", parts.scheme
    if not is_http:
        raise ConfigurationError(f"kafka.{_URL}: the value must be https://host/path, http://host/path or file:///path")
    return f"kafka.{_URL} = '{parts.scheme}://{parts.netloc}{parts.path}'", parts.scheme


def _endpoint(values: ConfigValues, options: Mapping[str, str], origin: str, url: str) -> TokenEndpoint:
    credentials = {name: values.secret(newer) or options.get(name, "") for name, newer in _CREDENTIALS.items()}
    for name in ("clientId", "clientSecret"):
        if not credentials[name].strip():
            raise ConfigurationError(
                f"kafka.sasl.jaas.config: OAUTHBEARER needs {name} for kafka.{_URL} (or kafka.{_CREDENTIALS[name]})"
            )
    id_and_secret = [credentials["clientId"].strip(), credentials["clientSecret"].strip()]
    if values.read(kafka.HEADER_URLENCODE):
        id_and_secret = [quote_plus(text) for text in id_and_secret]
    scope = credentials["scope"].strip()
    return TokenEndpoint(
        origin=origin,
        url=url,
        authorization=f"Basic {base64.b64encode(':'.join(id_and_secret).encode(errors='replace')).decode()}",
        body=urlencode({"grant_type": "client_credentials", **({"scope": scope} if scope else {})}, errors="replace"),
        connect_seconds=values.read(kafka.INTEGERS["sasl.login.connect.timeout.ms"]) / 1000,
        read_seconds=values.read(kafka.INTEGERS["sasl.login.read.timeout.ms"]) / 1000,
        backoff_seconds=values.read(kafka.INTEGERS["sasl.login.retry.backoff.ms"]) / 1000,
        retry_seconds=values.read(kafka.INTEGERS["sasl.login.retry.backoff.max.ms"]) / 1000,
        tls=_endpoint_tls(options) if url.startswith("https:") else None,
    )


def _endpoint_tls(options: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context for the token endpoint, from the login module's `ssl.*` options.

    The `ssl.*` client properties are for brokers, and have no effect on this context. (Kafka: `JaasOptionsUtils`.)

    Raises:
        ConfigurationError: a store is missing or does not load, or an option's value is not supported.
    """
    try:
        return tls_context(ConfigValues({name: value for name, value in options.items() if name.startswith("ssl.")}))
    except ConfigurationError as error:
        raise ConfigurationError(f"for the token endpoint, in kafka.sasl.jaas.config: {error}") from error


def _callable(origin: str, name: str) -> Callable[[], Any]:
    module, _, attribute = name.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module may raise anything
        raise ConfigurationError(
            f"{origin} cannot be imported on this machine: {type(error).__name__}: {error}"
        ) from error
    if not callable(function):
        raise ConfigurationError(f"{origin} is no function")
    return function  # type: ignore[no-any-return]


def _from_callable(origin: str, function: Callable[[], Any]) -> Token:
    """Call the user's function, and return its token.

    Errors do not show the text of the function's exceptions, which may contain a secret.

    Raises:
        BrokerUnavailableError: the function raised an OSError.
        ConfigurationError: the function raised another exception, or did not return a token.
    """
    try:
        returned = function()
    except OSError as error:
        raise BrokerUnavailableError(f"{origin} failed: {type(error).__name__}") from error
    except Exception as error:
        raise ConfigurationError(f"{origin} failed: {type(error).__name__}") from error
    match returned:
        case str(text):
            expires_at = None
        case (str(text), int() | float() as expiry):
            expires_at = float(expiry)
        case _:
            raise ConfigurationError(f"{origin} must return a token, or a token and its end in seconds since the epoch")
    return read_token(origin, text, expires_at)
