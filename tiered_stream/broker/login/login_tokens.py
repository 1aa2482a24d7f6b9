"""Tokens for OAUTHBEARER logins: check of a token's text, and the provider of one client's tokens."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson

from tiered_stream.broker.login.renewed_login import Refresh, RenewedLogin
from tiered_stream.broker.wire.kafka_python import AbstractTokenProvider
from tiered_stream.errors import ConfigurationError

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # RFC 6750's b64token
_MAX_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """OAuth token of a login. `expires_at` is its expiry time in seconds since the epoch; None: unknown."""

    text: str = field(repr=False)
    expires_at: float | None


def read_token(origin: str, text: str, expires_at: float | None = None) -> Token:
    """Check a token's text, and return the token with its expiry time.

    The expiry time is the claim `exp` if the token is a JWT that has one, and otherwise `expires_at`.

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
        clock: returns a monotonic time in seconds.
    """

    kind, source = "token", "token endpoint"

    def __init__(
        self,
        origin: str,
        obtain: Callable[[], Token],
        refresh: Refresh,
        extensions: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(origin, obtain, refresh, clock)
        self._extensions = dict(extensions)

    def token(self) -> str:
        """Return the text of the current token. Raises BrokerUnavailableError if there is none or it has expired."""
        return self.current().text

    def extensions(self) -> dict[str, str]:
        return self._extensions
