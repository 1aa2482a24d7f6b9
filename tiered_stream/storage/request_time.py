"""Time limits of one GET with all its attempts, and the clock of each thread's GET."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Self

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.object_store import ATTEMPTS

_ATTEMPTS_BEFORE_FALLBACK = 2
"""Maximum number of attempts of a GET that times out, if brokers can serve the records instead of storage.

One timeout may come from a lost packet or a slow server, so the GET is sent again. After a second timeout, the
segment's records are read from a broker.
"""


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """KIP-1254's timeouts for connecting and reading, and the limits of a whole GET.

    Times are in milliseconds. `total_ms` limits all attempts of a GET together. `attempts` is the maximum number of
    attempts of a GET that times out.
    """

    connect_ms: int
    read_ms: int
    total_ms: int
    attempts: int

    @classmethod
    def of(cls, options: StorageOptions) -> Self:
        attempts = _ATTEMPTS_BEFORE_FALLBACK if options.has_fallback else ATTEMPTS
        return cls(options.connect_timeout_ms, options.read_timeout_ms, options.request_timeout_ms, attempts)

    def describe(self, *, is_over: bool) -> str:
        """Return which timeout ended a GET: the end of an error message that begins with the object's name.

        `is_over` is true if the time limit of the whole GET is over.
        """
        if is_over:
            return f"did not come within remote.fetch.request.timeout.ms, {self.total_ms / 1000:g} s in all"
        return f"was not heard of for kafka.fetch.remote.read.timeout.ms, {self.attempts} times"


class RequestTime(threading.local):
    """Clock of the time that is left for each thread's current GET, and counter of the GET's timeouts.

    `now` returns seconds.
    """

    def __init__(self, timeouts: RequestTimeouts, now: Callable[[], float] = time.monotonic) -> None:
        self.timeouts = timeouts
        self._now = now
        self._end = inf
        self._timeouts_left = timeouts.attempts - 1

    def begin(self) -> None:
        """Start the clock for a new GET of this thread, and reset the counter of timeouts."""
        self._end = self._now() + self.timeouts.total_ms / 1000
        self._timeouts_left = self.timeouts.attempts - 1

    @property
    def is_over(self) -> bool:
        return self.left() <= 0

    def repeats_after_timeout(self) -> bool:
        """Count a timeout of this thread's GET, and return whether attempts and time are left to send the GET again."""
        self._timeouts_left -= 1
        return self._timeouts_left >= 0 and not self.is_over

    def left(self) -> float:
        """Return the seconds that are left for this thread's GET."""
        return self._end - self._now()
