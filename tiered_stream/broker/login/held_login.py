"""Tokens and credentials for logins at brokers: kept while they are valid, and requested again before they expire.

A login happens on the network thread, which must not wait for another service. So `renewal` requests the token or the
credentials in another thread, and `held` returns the last ones.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tiered_stream.errors import BrokerUnavailableError, TieredStreamError

_log = logging.getLogger(__name__)

_PATIENCE = 120.0
"""Seconds after which a renewal counts as hung. Every source of tokens in this package gives up earlier."""


class Ending(Protocol):
    """Token or credentials with an expiry time `expires_at`, in seconds since the epoch; None: unknown."""

    @property
    def expires_at(self) -> float | None: ...


T = TypeVar("T", bound=Ending)


@dataclass(frozen=True, slots=True)
class Refresh:
    """Rule for the time of the next renewal (Kafka: `ExpiringCredentialRefreshingLogin.refreshMs`).

    `factor` and `jitter` are parts of a token's lifetime; `min_period` and `buffer` are in seconds.
    """

    factor: float
    jitter: float
    min_period: float
    buffer: float

    def after(self, life: float, chance: float) -> float:
        """Return the seconds until the renewal of a token that lives for `life` seconds; `chance` is from 0 to 1."""
        proposed = life * (self.factor + self.jitter * chance)
        if self.min_period + self.buffer >= life:
            return proposed
        return max(self.min_period, min(proposed, life - self.buffer))


@dataclass(frozen=True, slots=True)
class _Held(Generic[T]):
    shown: T = field(repr=False)
    renew_at: float
    ends: float


class HeldLogin(Generic[T]):
    """Token or credentials of one client's logins. Safe to share between threads.

    Args:
        origin: the setting that names the source, for errors.
        obtain: requests a new token or new credentials; raises an error of `tiered_stream.errors`.
    """

    shows = "login"
    """Noun for the token or the credentials, in errors."""
    source = "source of logins"
    """Noun for the service that issues the tokens or credentials, in messages."""

    def __init__(
        self, origin: str, obtain: Callable[[], T], refresh: Refresh, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.origin = origin
        self._obtain, self._refresh, self._clock = obtain, refresh, clock
        self._held: _Held[T] | None = None
        self._lock = threading.Lock()
        self._renewal: Future[None] | None = None
        self._patience, self._hung_at = _PATIENCE, 0.0

    @property
    def usable(self) -> bool:
        """Whether there is a token (or credentials) that has not expired."""
        held = self._held
        return held is not None and self._clock() < held.ends

    def held(self) -> T:
        """Return the token or the credentials without waiting, and start a renewal if one is due.

        Raises:
            BrokerUnavailableError: there is no token and no credentials, or they have expired.
        """
        held = self._held
        if held is None or self._clock() >= held.ends:
            raise BrokerUnavailableError(f"{self.origin}: the {self.shows} ended, and no new {self.shows} came yet")
        if self._clock() >= held.renew_at:
            self.renewal()
        return held.shown

    def renewal(self) -> Future[None]:
        """Start to request a new token or credentials, and return a future that ends when they are there, or fails.

        One renewal runs at a time. If a source hangs (a user's function, a file on a dead server), it is asked again in
        another thread. The patience doubles each time, so that few threads hang.
        """
        with self._lock:
            running = self._renewal
            if running is not None and not running.done():
                if self._clock() < self._hung_at:
                    return running
                _log.warning("%s: nothing came in %d s; it is asked again", self.origin, self._patience)
                self._patience *= 2
            self._hung_at = self._clock() + self._patience
            self._renewal = Future()
            work = threading.Thread(target=self._renew, args=(self._renewal,), name="tiered-stream-login", daemon=True)
            work.start()
            return self._renewal

    def _renew(self, done: Future[None]) -> None:
        try:
            self._held, self._patience = self._hold(self._obtain()), _PATIENCE
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            held = self._held
            if held is not None and self.usable and isinstance(error, TieredStreamError):
                _log.warning("no new %s, the one before is used until its end: %s", self.shows, error)
                self._held = _Held(held.shown, self._clock() + self._refresh.min_period, held.ends)
                done.set_result(None)
            else:
                done.set_exception(error)
        else:
            done.set_result(None)

    def _hold(self, shown: T) -> _Held[T]:
        now = self._clock()
        if shown.expires_at is None:
            return _Held(shown, now + self._refresh.min_period, float("inf"))
        life = shown.expires_at - time.time()
        if life <= 0:
            raise BrokerUnavailableError(f"{self.origin}: the {self.shows} handed out had ended already")
        return _Held(shown, now + self._refresh.after(life, random.random()), now + life)
