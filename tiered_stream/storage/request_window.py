"""How many GETs to have in flight, and how large, so that the decoder need not wait and no memory is wasted."""

from __future__ import annotations

from collections import deque
from statistics import fmean
from threading import Lock

from tiered_stream.options.parsing import FetchOptions, Options
from tiered_stream.process.shared import PerProcess

FIRST = 8
"""Number of requests in flight before anything is known of storage and decoder."""
_READY = 3
"""Number of requests beyond those needed: two whose responses wait, because speeds vary, and the next one."""
_READY_LARGER = 2
"""Number of additional requests if they are larger than usual: each waiting response has twice the usual bytes."""
SMALLEST = 4
"""Divisor of a request's usual bytes that gives the smallest request."""
_LARGER = 2
"""Factor of a request's usual bytes that gives the largest request, used where few requests are needed."""
_FEW = 2
"""The storage is quick if the consumer decodes fewer than this many requests while one of them is in flight."""
_MANY = 4
"""The storage is slow if the consumer decodes more than this many usual requests while one is in flight.

A consumer that waits then gets a smaller request.
"""
_SEVERAL = 4
"""Number of requests that must fit into the memory limit before they may be larger than usual."""
_KEPT = 16
"""Number of recent requests, and of recent responses, from which speeds are estimated."""
_SHORTEST = 1e-9
"""Lower bound of the seconds that the consumer works on one byte."""


class RequestWindow:
    """Number of requests to have ahead of the consumer of their responses (at least 1), and their size in bytes.

    A storage that is slow to send the first byte, or slow on each connection, needs many requests at once. A quick
    storage needs few, and the memory has a better use. The time of a request is estimated from the fastest recent
    request: if more requests are in flight than the storage has bandwidth for, all requests become slower, and more
    requests would not help.

    Each request costs the same CPU whatever its size, so requests are large where few are needed. If memory cannot hold
    the requests that are needed, smaller requests bring more bytes a second for the memory that they occupy.

    Threads may share one window: each learns from the storage and decoder speeds that the others have measured.
    """

    def __init__(self, options: FetchOptions) -> None:
        self._lock = Lock()
        self._usual = options.request_bytes
        self._memory = options.memory_bytes
        self._most = self._allowed = options.in_flight + _READY
        self._taken: dict[int, deque[tuple[int, float]]] = {}
        """Actual bytes and seconds of recent requests, by the requested size."""
        self._latest = 0
        """Requested size of the last request, in bytes."""
        self._work: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        """Bytes and seconds of recent work of the consumer."""
        self._busy_answers: int | None = None
        self._since_busy = 0

    @property
    def size(self) -> int:
        """Number of requests that may have been sent without their responses being taken."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        if not self._work or not self._latest:
            return min(FIRST, self._allowed)
        bytes_each = fmean(size for size, _ in self._taken[self._latest])
        # More than the mean is needed, because neither storage nor consumer is steady.
        ready = _READY if self._latest <= self._usual else _READY_LARGER
        needed = 1.5 * self._decoded_meanwhile(self._latest) / max(bytes_each, 1) + ready
        return int(min(self._allowed, needed))

    def request_bytes(self, *, first: bool = False) -> int:
        """Return the maximum number of bytes of the next request; `first`: the consumer waits for its response."""
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
        """Return how many bytes the consumer processes while one request of `size` bytes is in flight."""
        worked = sum(seconds for _, seconds in self._work) / max(sum(size for size, _ in self._work), 1)
        return self._seconds(size) / max(worked, _SHORTEST)

    def _seconds(self, size: int) -> float:
        """Estimate the seconds that a request of `size` bytes takes.

        A larger request takes longer, at most in proportion to its size.
        """
        of_latest = min(seconds for _, seconds in self._taken[self._latest])
        if size not in self._taken:
            return of_latest
        known = min(seconds for _, seconds in self._taken[size])
        least, most = sorted((of_latest, of_latest * size / self._latest))
        return min(max(known, least), most)

    def taken(self, size: int, seconds: float, worked: tuple[int, float] | None, busy_answers: int) -> None:
        """Record that the consumer took a response, and adapt the number of requests that are allowed.

        Args:
            size: number of bytes of the response.
            seconds: how long the request took.
            worked: bytes of the response before this one, and how many seconds the consumer worked on them; None if
                this is the first response.
            busy_answers: how often the storage has asked for fewer requests so far (S3: 503 SlowDown).
        """
        with self._lock:
            self._latest = self._rounded(size)
            self._taken.setdefault(self._latest, deque(maxlen=_KEPT)).append((size, seconds))
            if worked is not None:
                self._work.append(worked)
            if self._busy_answers is not None and busy_answers > self._busy_answers:
                self._allowed, self._since_busy = max(1, self._size() // 2), 0
            elif (since := self._since_busy + 1) >= self._allowed:
                # As many responses as requests are allowed came without a SlowDown: allow one more request.
                self._allowed, self._since_busy = min(self._allowed + 1, self._most), 0
            else:
                self._since_busy = since
            self._busy_answers = busy_answers

    def _rounded(self, size: int) -> int:
        """Return the smallest requested size that is at least `size`, or the largest requested size."""
        sizes = [self._usual // SMALLEST, self._usual // 2, self._usual, _LARGER * self._usual]
        return next((each for each in sizes if size <= each), sizes[-1])


_windows: PerProcess[RequestWindow] = PerProcess()


def window_for(options: Options) -> RequestWindow:
    """Return the process's request window for this storage, which keeps the speeds that earlier tasks measured."""
    given = {"storage": options.storage, "class": options.fetcher_class, "fetch": options.fetch}
    return _windows.get(given, lambda: RequestWindow(options.fetch))
