"""A bound on bytes a second, as a token bucket that may go into debt.

Requests are larger than what a second allows: one passes when nothing is owed, and those after it wait until it is
paid for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from tiered_stream.process import PerProcess

Pace = Callable[[int], object]
"""Called with a number of bytes before they are moved; returns when they may be."""


class StoppablePace(Protocol):
    """A pace whose wait ends, too, when nobody wants the bytes any more: when `given_up` is set."""

    def __call__(self, size: int, given_up: threading.Event | None = None, /) -> bool:
        """Whether the bytes may be moved; otherwise they were given up, and do not count."""


def unpaced(_size: int, _given_up: threading.Event | None = None, /) -> bool:
    """Move bytes as fast as it goes."""
    return True


MOST_SAVED_SECONDS = 1.0
"""What is not used is saved up for no longer than this."""


class TokenBucket:
    """Lets `rate` bytes a second pass. Safe to share between threads; who asks first goes first.

    Begins empty: the first bytes pass at once, those after them wait. `now` and `sleep` are in seconds.
    """

    def __init__(
        self, rate: int, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if rate <= 0:
            raise ValueError(f"not a rate: {rate} bytes a second")
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._lock = threading.Lock()
        self._balance = 0.0
        self._at = now()

    def take(self, size: int, given_up: threading.Event | None = None, /) -> bool:
        """Wait until what was taken before is paid for, and take `size` bytes; False: given up, and nothing taken."""
        with self._lock:
            now = self._now()
            self._balance = min(self._balance + (now - self._at) * self._rate, MOST_SAVED_SECONDS * self._rate)
            self._at = now
            wait = -self._balance / self._rate
            self._balance -= size
        if wait <= 0:
            return True
        if given_up is None:
            self._sleep(wait)
        elif given_up.wait(wait):
            with self._lock:
                self._balance += size  # or those who come later would wait for bytes that nobody moves
            return False
        return True


_buckets: PerProcess[TokenBucket] = PerProcess()


def pace_of(side: str, rate: int | None) -> StoppablePace:
    """The process's pace for one side of its work, such as `storage`; None: as fast as it goes.

    One a process, because a process works on one task after the other: a new task does not begin with a new allowance.
    """
    if rate is None:
        return unpaced
    return _buckets.get((side, rate), lambda: TokenBucket(rate)).take
