"""How many requests are worth having under way, and how large: what comes while the decoder works, and no more."""

from __future__ import annotations

from collections import deque
from statistics import fmean
from threading import Lock

from tiered_stream.options.parsing import FetchOptions, Options
from tiered_stream.process import PerProcess

FIRST = 8
"""Requests at once before anything is known of storage and decoder."""
_READY = 3
"""Beside those under way: two whose responses wait, as no machine is steady, and one to follow."""
_READY_LARGER = 2
"""The same of larger ones than usual: one that waits has as many bytes as two, and the storage is quick."""
SMALLEST = 4
"""By how much the usual bytes of a request are divided for the smallest."""
_LARGER = 2
"""Times the usual bytes of a request, where few are needed."""
_FEW = 2
"""Requests that are decoded while one of their size comes, at most, where the storage is about as quick as that."""
_MANY = 4
"""Those of the usual size, at least, where the storage is so slow that who waits is given less."""
_SEVERAL = 4
"""Requests for which there has to be memory, if they are to be larger than usual."""
_KEPT = 16
"""Requests and responses that tell how things are now."""
_SHORTEST = 1e-9
"""Seconds of work for a byte."""


class RequestWindow:
    """Between 1 and so many requests ahead of the one who consumes their responses, and how large they are to be.

    A storage that takes long to its first byte, or gives a connection little, needs many at once; one that is quick
    needs few, and memory is better used otherwise. What a request takes is that of the quickest of late: they get
    slower, all of them, where more are at once than the storage has bytes for, and then more would be no help.

    Each request costs the same CPU, whatever it brings, so they are large where few are needed. Where so many are that
    memory does not hold them, smaller ones bring more bytes a second for the memory that they wait in.

    Threads may share one: what one learns of storage and decoder holds for the others.
    """

    def __init__(self, options: FetchOptions) -> None:
        self._lock = Lock()
        self._usual = options.request_bytes
        self._memory = options.memory_bytes
        self._most = self._allowed = options.in_flight + _READY
        self._taken: dict[int, deque[tuple[int, float]]] = {}
        """Bytes and seconds of requests, by how large they were to be."""
        self._latest = 0
        """How large the last of them was."""
        self._work: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        """Bytes and seconds of what the consumer did."""
        self._busy_answers: int | None = None
        self._since_busy = 0

    @property
    def size(self) -> int:
        """Requests that may be sent and not taken."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        if not self._work or not self._latest:
            return min(FIRST, self._allowed)
        bytes_each = fmean(size for size, _ in self._taken[self._latest])
        # More than the mean needs: neither side is steady.
        ready = _READY if self._latest <= self._usual else _READY_LARGER
        needed = 1.5 * self._decoded_meanwhile(self._latest) / max(bytes_each, 1) + ready
        return int(min(self._allowed, needed))

    def request_bytes(self, *, first: bool = False) -> int:
        """The most of the request that is sent next; `first`: the consumer waits for it, and has nothing to do."""
        with self._lock:
            if not self._work or not self._latest:
                return self._usual
            in_use = max(self._latest, self._usual)
            quick = self._decoded_meanwhile(in_use) < _FEW * in_use
            meanwhile = self._decoded_meanwhile(self._usual)
        if quick:
            return min(_LARGER * self._usual, max(self._usual, self._memory // _SEVERAL))
        if first and meanwhile > _MANY * self._usual:
            return self._usual // SMALLEST
        return self._usual if meanwhile + _READY * self._usual <= self._memory else self._usual // 2

    def _decoded_meanwhile(self, size: int) -> float:
        """Bytes that the consumer is done with while a request of so many is under way."""
        worked = sum(seconds for _, seconds in self._work) / max(sum(size for size, _ in self._work), 1)
        return self._seconds(size) / max(worked, _SHORTEST)

    def _seconds(self, size: int) -> float:
        """What a request of so many bytes takes; larger ones take longer, at most as many times as they are larger."""
        of_latest = min(seconds for _, seconds in self._taken[self._latest])
        if size not in self._taken:
            return of_latest
        known = min(seconds for _, seconds in self._taken[size])
        least, most = sorted((of_latest, of_latest * size / self._latest))
        return min(max(known, least), most)

    def taken(self, size: int, seconds: float, worked: tuple[int, float] | None, busy_answers: int) -> None:
        """A response was taken.

        Args:
            size: its bytes.
            seconds: how long the request took.
            worked: the bytes of the one before it, and how many seconds the consumer was at work on them; None: there
                was none.
            busy_answers: how often the storage has said by now that it wants fewer requests (S3: 503 SlowDown).
        """
        with self._lock:
            self._latest = self._rounded(size)
            self._taken.setdefault(self._latest, deque(maxlen=_KEPT)).append((size, seconds))
            if worked is not None:
                self._work.append(worked)
            if self._busy_answers is not None and busy_answers > self._busy_answers:
                self._allowed, self._since_busy = max(1, self._size() // 2), 0
            elif (since := self._since_busy + 1) >= self._allowed:
                # As many as are allowed were answered well: one more.
                self._allowed, self._since_busy = min(self._allowed + 1, self._most), 0
            else:
                self._since_busy = since
            self._busy_answers = busy_answers

    def _rounded(self, size: int) -> int:
        """The size that is asked for which is at least so many bytes, or the largest."""
        sizes = [self._usual // SMALLEST, self._usual // 2, self._usual, _LARGER * self._usual]
        return next((each for each in sizes if size <= each), sizes[-1])


_windows: PerProcess[RequestWindow] = PerProcess()


def window_for(options: Options) -> RequestWindow:
    """The process's window for this storage: a task goes on with what the one before it has learned."""
    given = {"storage": options.storage, "class": options.fetcher_class, "fetch": options.fetch}
    return _windows.get(given, lambda: RequestWindow(options.fetch))
