"""What a login shows a broker (a token, credentials): held while it is good, asked for again before it ends.

A login happens on the network thread, which must not wait for anybody else. So what it shows is asked for in a thread
of its own (`renewal`), and `held` hands out the last one.
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
"""Seconds after which a renewal counts as hung: every source of ours has given up long before."""


class Ending(Protocol):
    """Something with an end, in seconds since the epoch; None: nobody knows when."""

    @property
    def expires_at(self) -> float | None: ...


T = TypeVar("T", bound=Ending)


@dataclass(frozen=True, slots=True)
class Refresh:
    """When a new one is asked for (Kafka: `ExpiringCredentialRefreshingLogin.refreshMs`); times in seconds."""

    factor: float
    jitter: float
    min_period: float
    buffer: float

    def after(self, life: float, chance: float) -> float:
        """Seconds from the arrival of one with this life to the next request; `chance` is from 0 to 1."""
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
    """What the logins of one client show. Safe to share between threads.

    Args:
        origin: the setting that says where it comes from, for errors.
        obtain: get a new one; raises an error of ours.
    """

    shows = "login"
    """The name of what is shown, for errors."""
    source = "source of logins"
    """The name of who hands it out."""

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
        """Whether there is one that has not ended."""
        held = self._held
        return held is not None and self._clock() < held.ends

    def held(self) -> T:
        """Return the one that is held, without waiting. Where a new one is due, that is asked for meanwhile.

        Raises:
            BrokerUnavailableError: there is none, or it has ended.
        """
        held = self._held
        if held is None or self._clock() >= held.ends:
            raise BrokerUnavailableError(f"{self.origin}: the {self.shows} ended, and no new {self.shows} came yet")
        if self._clock() >= held.renew_at:
            self.renewal()
        return held.shown

    def renewal(self) -> Future[None]:
        """Done when a new one is there; fails with an error of ours. One is asked for at a time.

        A source that hangs (a function of the user's, a file of a dead server) does not end all logins: it is asked
        again in another thread. The patience doubles each time, so that few threads are lost to it.
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
