"""Limit of bytes, or of requests, a second: a token bucket whose balance of bytes may become negative.

A call may take more bytes than one second allows. A call passes when the balance is not negative, and the call may make
the balance negative. Later calls wait until the balance has grown to 0 again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from tiered_stream.process.caches import PerProcess

Pace = Callable[[int], object]
"""Function that waits until the given number of bytes may be read or written, and then returns."""


class StoppablePace(Protocol):
    """Function that waits until bytes may be read or written; the wait also ends when the event `given_up` is set."""

    def __call__(self, size: int, given_up: threading.Event | None = None, /) -> bool:
        """Wait until `size` bytes may be read or written, and return True.

        Return False, and do not count the bytes, if the event `given_up` is set first.
        """


def unpaced(_size: int, _given_up: threading.Event | None = None, /) -> bool:
    """Return True at once, because there is no limit of bytes a second."""
    return True


MAX_SAVED_SECONDS = 1.0
"""Default of `max_saved_seconds` of `TokenBucket`, in seconds."""


class TokenBucket:
    """Token bucket that lets `rate` bytes a second pass, for many threads in the order of their calls.

    The bucket begins empty: the first call passes at once, and later calls wait. Bytes that no call has taken are saved
    up for later calls: at most the bytes of `max_saved_seconds` at the full rate.
    """

    def __init__(self, rate: int, max_saved_seconds: float = MAX_SAVED_SECONDS) -> None:
        self._rate = rate
        self._max_balance = max_saved_seconds * rate
        self._lock = threading.Lock()
        self._balance = 0.0
        self._at = time.monotonic()

    def take(self, size: int, given_up: threading.Event | None = None, /) -> bool:
        """Take `size` bytes from the bucket's balance, and return True; wait if earlier calls have overdrawn it.

        Return False, and take no bytes, if the event `given_up` is set while the call waits.
        """
        with self._lock:
            now = time.monotonic()
            self._balance = min(self._balance + (now - self._at) * self._rate, self._max_balance)
            self._at = now
            wait = -self._balance / self._rate
            self._balance -= size
        if wait <= 0:
            return True
        if given_up is None:
            time.sleep(wait)
        elif given_up.wait(wait):
            with self._lock:
                self._balance += size  # later callers must not wait for bytes that are not read or written
            return False
        return True


_buckets: PerProcess[TokenBucket] = PerProcess()


def pace_of(side: str, rate: int | None) -> StoppablePace:
    """Return the process's shared function that limits one kind of work to `rate` bytes a second.

    The process has one bucket for each pair of `side` and `rate`. A process runs one task after another, and a new task
    must not begin with a new bucket.

    Args:
        side: name of the kind of work, such as "fetch".
        rate: limit in bytes a second; None: there is no limit, and the function returns at once.
    """
    if rate is None:
        return unpaced
    return _buckets.get((side, rate), lambda: TokenBucket(rate)).take
