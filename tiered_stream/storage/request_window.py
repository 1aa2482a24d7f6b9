"""How many requests are worth having under way: those that come while the decoder works, and no more."""

from __future__ import annotations

from collections import deque
from statistics import fmean
from threading import Lock

from tiered_stream.options.parsing import Options
from tiered_stream.process import PerProcess

FIRST = 8
"""Requests at once before anything is known of storage and decoder."""
_READY = 3
"""Beside those under way: two whose responses wait, as no machine is steady, and one to follow."""
_FEW = 5
"""Requests that a storage needs which is about as quick as the decoder."""
_LARGER = 2
"""Times the usual bytes of a request, where few are needed."""
_KEPT = 16
"""Requests and responses that tell how things are now."""
_SHORTEST = 1e-6
"""Seconds of work."""


class RequestWindow:
    """Between 1 and so many requests ahead of the one who consumes their responses.

    A storage that takes long to its first byte, or gives a connection little, needs many at once; one that is quick
    needs few, and memory is better used otherwise. What a request takes is that of the quickest of late: they get
    slower, all of them, where more are at once than the storage has bytes for, and then more would be no help.

    Threads may share one: what one learns of storage and decoder holds for the others.
    """

    def __init__(self, in_flight: int) -> None:
        self._lock = Lock()
        self._most = self._allowed = in_flight + _READY
        self._size = min(FIRST, self._most)
        self._requests: deque[float] = deque(maxlen=_KEPT)
        self._work: deque[float] = deque(maxlen=_KEPT)
        self._busy_answers: int | None = None
        self._since_busy = 0

    @property
    def size(self) -> int:
        """Requests that may be sent and not taken."""
        return min(self._size, self._allowed)

    def request_bytes(self, usual: int) -> int:
        """The most of the requests that are sent next, `usual` being that of one: more where few are needed.

        Each costs the same, whatever it brings. Where many are needed, smaller ones give more bytes a second for the
        memory that they wait in.
        """
        return usual * _LARGER if self._work and self._size <= _FEW else usual

    def taken(self, request_seconds: float, work_seconds: float | None, busy_answers: int) -> None:
        """A response was taken.

        Args:
            request_seconds: how long it took.
            work_seconds: how long the consumer was at work on the one before it; None: there was none.
            busy_answers: how often the storage has said by now that it wants fewer requests (S3: 503 SlowDown).
        """
        with self._lock:
            self._requests.append(request_seconds)
            if work_seconds is not None:
                self._work.append(work_seconds)
                # More than the mean needs: neither side is steady.
                needed = 1.5 * min(self._requests) / max(fmean(self._work), _SHORTEST) + _READY
                self._size = min(self._most, int(needed))
            if self._busy_answers is not None and busy_answers > self._busy_answers:
                self._allowed, self._since_busy = max(1, self.size // 2), 0
            elif (since := self._since_busy + 1) >= self._allowed:
                # As many as are allowed were answered well: one more.
                self._allowed, self._since_busy = min(self._allowed + 1, self._most), 0
            else:
                self._since_busy = since
            self._busy_answers = busy_answers


_windows: PerProcess[RequestWindow] = PerProcess()


def window_for(options: Options) -> RequestWindow:
    """The process's window for this storage: a task goes on with what the one before it has learned."""
    given = {"storage": options.storage, "class": options.fetcher_class, "fetch": options.fetch}
    return _windows.get(given, lambda: RequestWindow(options.fetch.in_flight))
