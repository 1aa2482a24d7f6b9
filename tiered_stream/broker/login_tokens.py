"""Tokens for OAUTHBEARER logins: held while they are good, asked for anew before they end.

A login happens on the network thread, which must not wait for a token endpoint. So a token is asked for in a thread of
its own (`renewal`), and `token` hands out the one that is held.
"""

from __future__ import annotations

import base64
import binascii
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import orjson

from tiered_stream.broker.kafka_python import AbstractTokenProvider
from tiered_stream.errors import BrokerUnavailableError, ConfigurationError, TieredStreamError

_log = logging.getLogger(__name__)

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # RFC 6750's b64token
_MOST_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """`expires_at`: in seconds since the epoch; None: nobody knows."""

    text: str = field(repr=False)
    expires_at: float | None


def read_token(text: str, expires_at: float | None = None) -> Token:
    """A token that someone handed out; what a JWT says of its end goes before `expires_at`.

    Raises:
        ConfigurationError: it cannot be one; it is not shown.
    """
    text = text.strip()
    if len(text) > _MOST_CHARACTERS or not _TOKEN.fullmatch(text):
        raise ConfigurationError("what was handed out is no token (RFC 6750)")
    claimed = _expiry_claim(text)
    return Token(text, expires_at if claimed is None else claimed)


def _expiry_claim(text: str) -> float | None:
    """The claim `exp` of a JWT."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    return float(ends) if isinstance(ends, int | float) else None


@dataclass(frozen=True, slots=True)
class Refresh:
    """When a token is asked for anew (Kafka: `ExpiringCredentialRefreshingLogin.refreshMs`); times in seconds."""

    factor: float
    jitter: float
    min_period: float
    buffer: float

    def after(self, life: float, chance: float) -> float:
        """So long after a token with this life was handed out; `chance` is from 0 to 1."""
        proposed = life * (self.factor + self.jitter * chance)
        if self.min_period + self.buffer >= life:
            return proposed
        return max(self.min_period, min(proposed, life - self.buffer))


@dataclass(frozen=True, slots=True)
class _Held:
    text: str = field(repr=False)
    renew_at: float
    ends: float


class LoginTokens(AbstractTokenProvider):  # type: ignore[misc]
    """The tokens of one client; what kafka-python asks for one. Safe to share between threads.

    Args:
        origin: the setting that says where tokens come from, for errors.
        obtain: a new token; raises an error of ours.
        extensions: SASL extensions that go with each (KIP-342).
    """

    def __init__(
        self,
        origin: str,
        obtain: Callable[[], Token],
        refresh: Refresh,
        extensions: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origin = origin
        self._obtain, self._refresh, self._extensions, self._clock = obtain, refresh, dict(extensions), clock
        self._held: _Held | None = None
        self._lock = threading.Lock()
        self._renewal: Future[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether there is a token that has not ended."""
        held = self._held
        return held is not None and self._clock() < held.ends

    def token(self) -> str:
        """The token that is held. Does not wait: where it is time for another, that is asked for meanwhile.

        Raises:
            BrokerUnavailableError: there is none, or it has ended.
        """
        held = self._held
        if held is None or self._clock() >= held.ends:
            raise BrokerUnavailableError(f"{self.origin}: the token has ended, and there is no other yet")
        if self._clock() >= held.renew_at:
            self.renewal()
        return held.text

    def extensions(self) -> dict[str, str]:
        return self._extensions

    def renewal(self) -> Future[None]:
        """Done when a new token is there; fails with an error of ours. One is asked for at a time."""
        with self._lock:
            if self._renewal is None or self._renewal.done():
                self._renewal = Future()
                work = threading.Thread(
                    target=self._renew, args=(self._renewal,), name="tiered-stream-login", daemon=True
                )
                work.start()
            return self._renewal

    def _renew(self, done: Future[None]) -> None:
        try:
            token = self._obtain()
            self._held = self._hold(token)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            held = self._held
            if held is not None and self.usable and isinstance(error, TieredStreamError):
                _log.warning("no new token, the one before is used until its end: %s", error)
                self._held = _Held(held.text, self._clock() + self._refresh.min_period, held.ends)
                done.set_result(None)
            else:
                done.set_exception(error)
        else:
            done.set_result(None)

    def _hold(self, token: Token) -> _Held:
        now = self._clock()
        if token.expires_at is None:
            return _Held(token.text, now + self._refresh.min_period, float("inf"))
        life = token.expires_at - time.time()
        if life <= 0:
            raise BrokerUnavailableError(f"{self.origin}: the token that was handed out has ended already")
        return _Held(token.text, now + self._refresh.after(life, random.random()), now + life)
