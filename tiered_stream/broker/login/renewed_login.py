"""Tokens and credentials for logins at brokers: kept while they are valid, and requested again before they expire.

A login happens on the network thread, which must not wait for another service. So `renewal` requests the token or the
credentials in another thread, and `current` returns the last token or credentials that came.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from tiered_stream.errors import BrokerUnavailableError, TieredStreamError

_log = logging.getLogger(__name__)

_PATIENCE = 120.0
"""Seconds after which a renewal counts as hung. With default settings, sources of tokens give up earlier.

With other settings, a source may need longer. A newer renewal then runs next to the older one.
"""


class Expiring(Protocol):
    """Token or credentials with an expiry time `expires_at`, in seconds since the epoch; None: unknown."""

    @property
    def expires_at(self) -> float | None: ...


T = TypeVar("T", bound=Expiring)


@dataclass(frozen=True, slots=True)
class Refresh:
    """Rule for the time of the next renewal (Kafka: `ExpiringCredentialRefreshingLogin.refreshMs`).

    A token is renewed when the fraction `factor` of its lifetime has passed, plus a random fraction of up to `jitter`.
    If the lifetime is longer than `min_period` and `buffer` (seconds) together, two bounds hold: the renewal is at
    least `min_period` after the token came, and at least `buffer` before it expires.
    """

    factor: float
    jitter: float
    min_period: float
    buffer: float

    def after(self, lifetime: float, chance: float) -> float:
        """Return the seconds from a token's arrival to its renewal.

        `lifetime` is the token's lifetime in seconds from its arrival. `chance` is a random number from 0 to 1.
        """
        proposed = lifetime * (self.factor + self.jitter * chance)
        if self.min_period + self.buffer >= lifetime:
            return proposed
        return max(self.min_period, min(proposed, lifetime - self.buffer))


@dataclass(frozen=True, slots=True)
class _Current(Generic[T]):
    """Token or credentials in use, with the times of their renewal and their expiry.

    `renew_at` and `ends_at` are in seconds of the monotonic clock.
    """

    value: T = field(repr=False)
    renew_at: float
    ends_at: float


def in_thread(work: Callable[[], object]) -> Future[None]:
    """Run `work` in a new thread; return a future that is done when `work` ends.

    The future has the error that `work` raises, or otherwise the result None.
    """
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the future passes the error to its callers
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="tiered-stream-login", daemon=True).start()
    return future


class RenewedLogin(Generic[T]):
    """Token or credentials of one client's logins, renewed before they expire. Safe to share between threads.

    Args:
        origin: the setting that names the source, for errors.
        obtain: requests a new token or new credentials, and may wait; raises an error of `tiered_stream.errors`.
        refresh: the rule for the time of the next renewal.
    """

    kind = "login"
    """Noun for the token or the credentials, in errors."""
    source = "source of logins"
    """Noun for the service that issues the tokens or credentials, in messages."""

    def __init__(self, origin: str, obtain: Callable[[], T], refresh: Refresh) -> None:
        self.origin = origin
        self._obtain, self._refresh, self._clock = obtain, refresh, time.monotonic
        self._current: _Current[T] | None = None
        self._lock = threading.Lock()
        self._renewal: Future[None] | None = None
        self._renewals = self._newest = 0
        """Number of started renewals, and number of the newest renewal that has ended well."""
        self._patience, self._hung_at = _PATIENCE, 0.0

    def usable(self, host: str = "") -> bool:
        """Return whether there is a token, or credentials, that have not expired.

        The token or the credentials are for every host, so `host` makes no difference.
        """
        current = self._current
        return current is not None and self._clock() < current.ends_at

    def current(self) -> T:
        """Return the token or the credentials without waiting, and start a renewal if one is due.

        Raises:
            BrokerUnavailableError: there is no token and no credentials, or they have expired.
        """
        current = self._current
        if current is None or self._clock() >= current.ends_at:
            raise BrokerUnavailableError(f"{self.origin}: the {self.kind} ended, and no new {self.kind} came yet")
        if self._clock() >= current.renew_at:
            self.renewal()
        return current.value

    def renewal(self, host: str = "") -> Future[None]:
        """Start a thread that requests a new token or new credentials; return a future of the request's end.

        The result of the future is None. If the request fails, the future has the error. But if the last token is still
        valid, that token stays in use, and the future has no error. The token or the credentials are for every host, so
        `host` makes no difference.

        If a renewal is running, return its future, and start no thread. A renewal that still runs after 120 s counts as
        hung, for example in a user's function or on a file of a dead server. Then another renewal is started. Each
        further renewal counts as hung only after twice the previous time, so that few threads hang.
        """
        with self._lock:
            running = self._renewal
            if running is not None and not running.done():
                if self._clock() < self._hung_at:
                    return running
                _log.warning("%s: nothing came in %d s; it is asked again", self.origin, self._patience)
                self._patience *= 2
            self._hung_at = self._clock() + self._patience
            self._renewals += 1
            self._renewal = in_thread(partial(self._renew, self._renewals))
            return self._renewal

    def _renew(self, number: int) -> None:
        """Request a new token or new credentials, and use them unless a renewal with a higher `number` has ended well.

        If the request fails, and the last token is still valid, that token stays in use.
        """
        try:
            renewed = self._as_current(self._obtain())
        except TieredStreamError as error:
            with self._lock:
                current = self._current
                if current is None or not self.usable():
                    raise
                self._current = replace(current, renew_at=self._clock() + self._refresh.min_period)
            _log.warning("no new %s, the one before is used until its end: %s", self.kind, error)
        else:
            with self._lock:
                if number > self._newest:
                    self._newest, self._current, self._patience = number, renewed, _PATIENCE

    def _as_current(self, value: T) -> _Current[T]:
        now = self._clock()
        if value.expires_at is None:
            return _Current(value, now + self._refresh.min_period, float("inf"))
        lifetime = value.expires_at - time.time()
        if lifetime <= 0:
            raise BrokerUnavailableError(f"{self.origin}: the {self.kind} handed out had ended already")
        return _Current(value, now + self._refresh.after(lifetime, random.random()), now + lifetime)
