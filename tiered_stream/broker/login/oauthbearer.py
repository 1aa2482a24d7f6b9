"""Tokens for OAUTHBEARER logins, from Kafka's `sasl.oauthbearer.*` and `sasl.login.*` client properties.

As in Kafka's `DefaultJwtRetriever`, tokens come from an `http(s)` endpoint with the client credentials grant (RFC 6749,
4.4; Kafka: `HttpJwtRetriever`), or from a `file:` URL. A Python function takes the place of a Java callback handler.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

import orjson
import urllib3

from tiered_stream import timed_http
from tiered_stream.broker import kafka_properties as kafka
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.key_stores import read_file
from tiered_stream.broker.login.renewed_login import Refresh, RenewedLogin
from tiered_stream.broker.login.tls import tls_context
from tiered_stream.broker.wire.kafka_python import AbstractTokenProvider
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError
from tiered_stream.options.types import is_http_url

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # RFC 6750's b64token
_MAX_CHARACTERS = 1 << 20
_MAX_BYTES = 1_000_000
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")
_PROVIDER = "sasl.oauthbearer.token.provider"
_URL = "sasl.oauthbearer.token.endpoint.url"
_RETRIEVERS = ("", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_CREDENTIALS = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
"""Properties (since Kafka 4.1) that take precedence over an option in `sasl.jaas.config`, by the option's name."""
_EXTENSION = "extension_"
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"(?!auth$)[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """OAuth token of a login. `expires_at` is its expiry time in seconds since the epoch; None: unknown."""

    text: str = field(repr=False)
    expires_at: float | None


def read_token(origin: str, text: str, expires_at: float | None = None) -> Token:
    """Check a token's text, and return the token with its expiry time.

    The expiry time is the claim `exp` if the token is a JWT with this claim, and otherwise `expires_at` (seconds since
    the epoch).

    Raises:
        ConfigurationError: the text cannot be a token. The message contains `origin`, the setting that names the
            token's source, but not the text.
    """
    text = text.strip()
    if len(text) > _MAX_CHARACTERS or not _TOKEN.fullmatch(text):
        raise ConfigurationError(f"{origin}: the text that it returned is no token (RFC 6750)")
    claimed_expiry = _expiry_claim(text)
    return Token(text, expires_at if claimed_expiry is None else claimed_expiry)


def _expiry_claim(text: str) -> float | None:
    """Return the claim `exp` of a JWT, in seconds since the epoch; None: the text is no JWT or has no such claim."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    return float(expiry) if isinstance(expiry, int | float) else None


class LoginTokens(RenewedLogin[Token], AbstractTokenProvider):  # type: ignore[misc]
    """Token provider for the OAUTHBEARER logins of one client. Safe to share between threads.

    Args:
        origin: the setting that names the source of tokens, for errors.
        obtain: requests a new token, and may wait; raises an error of `tiered_stream.errors`.
        refresh: the rule for the time of the next renewal.
        extensions: SASL extensions to send with each token (KIP-342).
    """

    kind, source = "token", "token endpoint"

    def __init__(
        self, origin: str, obtain: Callable[[], Token], refresh: Refresh, extensions: Mapping[str, str]
    ) -> None:
        super().__init__(origin, obtain, refresh)
        self._extensions = dict(extensions)

    def token(self) -> str:
        """Return the text of the current token. Raises BrokerUnavailableError if there is none or it has expired."""
        return self.current().text

    def extensions(self) -> dict[str, str]:
        return self._extensions


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """OAuth 2 token endpoint, and the request to send to it.

    Args:
        origin: the setting that names the endpoint, for errors.
        authorization: the value of the request's header `Authorization`.
        body: the request's body.
        connect_seconds: the time limit of one connection attempt.
        read_seconds: the time limit of one response.
        backoff_seconds: the wait before the first repetition of a failed request; later waits are longer.
        retry_seconds: the time from the first request on, within which failed requests are repeated.
        tls: the context for https; None for http.
    """

    origin: str
    url: str = field(repr=False)
    authorization: str = field(repr=False)
    body: str = field(repr=False)
    connect_seconds: float
    read_seconds: float
    backoff_seconds: float
    retry_seconds: float
    tls: ssl.SSLContext | None = field(repr=False)

    def obtain(self) -> Token:
        """Request a new token, and return it. Repeat a failed request for `retry_seconds`, after waits that double.

        Raises:
            BrokerAuthorizationError: the endpoint refused the client.
            BrokerUnavailableError: the endpoint was not reached, or could not respond.
            ConfigurationError: the response holds no token, or TLS fails.
        """
        give_up = time.monotonic() + self.retry_seconds
        wait = self.backoff_seconds
        while True:
            try:
                return self._ask()
            except BrokerUnavailableError:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(wait, left))
                wait *= 2

    def _ask(self) -> Token:
        headers = {
            "Authorization": self.authorization,
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Cache-Control": "no-cache",
        }
        try:
            with timed_http.timed_pools(self.connect_seconds, self.read_seconds, self.tls) as pools:
                status, content = timed_http.fetch(pools, "POST", self.url, _MAX_BYTES, body=self.body, headers=headers)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise self._connection_fault(error) from error
        return token_of(self.origin, status, content)

    def _connection_fault(self, error: Exception) -> BrokerUnavailableError | ConfigurationError:
        untrusted = timed_http.untrusted_certificate(error)
        if untrusted is not None:
            return ConfigurationError(
                f"{self.origin}: TLS failed: {untrusted.verify_message}; the endpoint's authority can be given as "
                'ssl.truststore.location="…" in kafka.sasl.jaas.config'
            )
        detail = str(error) if type(error) is ValueError else type(error).__name__
        return BrokerUnavailableError(f"{self.origin}: the token endpoint was not reached: {detail}")


def token_of(origin: str, status: int, content: bytes) -> Token:
    """Return the token in a token endpoint's response, given its HTTP status and body.

    Raises:
        BrokerAuthorizationError: the endpoint refused the client.
        BrokerUnavailableError: the endpoint could not respond.
        ConfigurationError: the response holds no token.
    """
    fields = timed_http.json_object(content) or {}
    if status not in (200, 201):
        raise _refused(origin, status, fields.get("error"))
    text, lifetime = fields.get("access_token") or fields.get("id_token"), fields.get("expires_in")
    if not isinstance(text, str):
        raise ConfigurationError(f"{origin}: its response has no access_token: is it the token endpoint?")
    return read_token(origin, text, time.time() + lifetime if isinstance(lifetime, int | float) else None)


def _refused(origin: str, status: int, code: object) -> BrokerUnavailableError | BrokerAuthorizationError:
    shown = f"{status} {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else str(status)
    if status in timed_http.RETRIABLE_STATUSES:
        return BrokerUnavailableError(f"{origin}: the token endpoint responded with {shown}")
    return BrokerAuthorizationError(
        f"{origin}: the token endpoint refused the client: {shown}; check clientId, clientSecret and scope in "
        "kafka.sasl.jaas.config (or kafka.sasl.oauthbearer.client.credentials.* and kafka.sasl.oauthbearer.scope)"
    )


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
    """Return the setting that names the source of tokens, for errors, and a function that requests a new token."""
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
    """
    with suppress(ValueError):  # raised if the text is no URL at all
        parts = urlsplit(url)
        if parts.scheme == "file" and parts.path.startswith("/") and parts.netloc in ("", "localhost"):
            return f"kafka.{_URL} = 'file://{parts.path}'", parts.scheme
        if is_http_url(url) and parts.username is None and parts.password is None:
            return f"kafka.{_URL} = '{parts.scheme}://{parts.netloc}{parts.path}'", parts.scheme
    raise ConfigurationError(
        f"kafka.{_URL}: the value must be https://host/path, http://host/path or file:///path, without a user and a "
        "password"
    )


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
    """Call the user's function, and return its token. `origin` is the setting that names the function, for errors.

    Errors do not show the text of the function's exceptions, which may contain a secret.

    Raises:
        BrokerUnavailableError: the function raised OSError.
        ConfigurationError: the function raised another exception, or returned no token.
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
