"""Client of an OAuth 2 token endpoint, with the client credentials grant (RFC 6749, 4.4; Kafka: `HttpJwtRetriever`)."""

from __future__ import annotations

import re
import ssl
import time
from dataclasses import dataclass, field
from typing import Any

import orjson
import urllib3

from tiered_stream.broker.login.login_tokens import Token, read_token
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError
from tiered_stream.process.logs import muted
from tiered_stream.timed_http import read_response, timed_pools, untrusted_certificate

_MAX_BYTES = 1_000_000
_RETRIABLE_STATUSES = {408, 425, 429, *range(500, 600)} - {501, 505}
"""HTTP statuses after which the same request may succeed."""
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")


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
            with muted("urllib3"), timed_pools(self.connect_seconds, self.read_seconds, self.tls) as pool:
                response = pool.request("POST", self.url, body=self.body, headers=headers, redirect=False,
                                        preload_content=False)  # fmt: skip
                status, content = response.status, read_response(response, _MAX_BYTES)
                response.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise self._connection_fault(error) from error
        return token_of(self.origin, status, content)

    def _connection_fault(self, error: Exception) -> BrokerUnavailableError | ConfigurationError:
        untrusted = untrusted_certificate(error)
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
        BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError: as `TokenEndpoint.obtain`.
    """
    try:
        document: Any = orjson.loads(content)
    except ValueError:
        document = None
    fields: dict[str, Any] = document if isinstance(document, dict) else {}
    if status not in (200, 201):
        raise _refused(origin, status, fields.get("error"))
    text, lifetime = fields.get("access_token") or fields.get("id_token"), fields.get("expires_in")
    if not isinstance(text, str):
        raise ConfigurationError(f"{origin}: its response has no access_token: is it the token endpoint?")
    return read_token(origin, text, time.time() + lifetime if isinstance(lifetime, int | float) else None)


def _refused(origin: str, status: int, code: object) -> BrokerUnavailableError | BrokerAuthorizationError:
    shown = f"{status} {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else str(status)
    if status in _RETRIABLE_STATUSES:
        return BrokerUnavailableError(f"{origin}: the token endpoint responded with {shown}")
    return BrokerAuthorizationError(
        f"{origin}: the token endpoint refused the client: {shown}; check clientId, clientSecret and scope in "
        "kafka.sasl.jaas.config (or kafka.sasl.oauthbearer.client.credentials.* and kafka.sasl.oauthbearer.scope)"
    )
