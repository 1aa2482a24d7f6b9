"""Choice of the number and the size of GETs to have in flight, from measured speeds of storage and decoder.

The decoder should not wait for responses, and responses should not use more memory than needed.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean
from threading import Lock

from tiered_stream.options.parsing import FetchOptions, Options
from tiered_stream.process.shared import PerProcess

FIRST_REQUESTS = 8
"""Number of requests in flight before anything is known of storage and decoder."""
_SPARE_REQUESTS = 3
"""Number of requests in addition to the number that keeps the decoder busy.

Two of their responses wait for the decoder, because speeds vary. The third request is the next one.
"""
_SPARE_LARGE_REQUESTS = 2
"""Number of requests in addition to the number that keeps the decoder busy, if requests have twice the usual size.

It is lower than `_SPARE_REQUESTS`, because each waiting response uses twice the memory.
"""
_RECENT = 16
"""Number of recent requests, and of recent responses, from which speeds are estimated."""
_MIN_SECONDS_PER_BYTE = 1e-9
"""Lower bound of the seconds that the decoder works on one byte."""


class RequestWindow:
    """Chooser of the number of requests to have ahead of the decoder (at least 1), and of their size in bytes.

    A storage that is slow to send the first byte, or slow on each connection, needs many requests at once. A quick
    storage needs few requests, and fewer requests use less memory. The time of a request is estimated from the fastest
    recent request: if more requests are in flight than the storage has bandwidth for, all requests become slower, and
    more requests would not help.

    The usual size of a request is `options.request_bytes`. Each request costs the same CPU whatever its size. So if few
    requests are needed, requests have twice the usual size. If memory cannot hold the requests that are needed,
    requests of half the usual size bring more bytes a second for the memory that they occupy.

    Threads may share one window. A thread then also uses the speeds that other threads have measured.
    """

    def __init__(self, options: FetchOptions) -> None:
        self._lock = Lock()
        self._usual = options.request_bytes
        self._memory = options.memory_bytes
        self._max_allowed = self._allowed = options.in_flight + _SPARE_REQUESTS
        self._requests: dict[int, deque[tuple[int, float]]] = {}
        """Actual bytes and seconds of recent requests, by the requested size."""
        self._latest = 0
        """Requested size of the last request, in bytes."""
        self._work: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        """Bytes and seconds of the decoder's recent work."""
        self._busy_answers: int | None = None
        self._since_busy = 0

    @property
    def size(self) -> int:
        """Maximum number of requests that are in flight or have a response that waits for the decoder."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        if not self._work or not self._latest:
            return min(FIRST_REQUESTS, self._allowed)
        mean_bytes = fmean(size for size, _ in self._requests[self._latest])
        # More than the mean is needed, because neither storage nor decoder is steady.
        spare = _SPARE_REQUESTS if self._latest <= self._usual else _SPARE_LARGE_REQUESTS
        needed = 1.5 * self._decoded_meanwhile(self._latest) / max(mean_bytes, 1) + spare
        return int(min(self._allowed, needed))

    def request_bytes(self) -> int:
        """Return the maximum size in bytes of the next request: half of, once, or twice the usual size."""
        with self._lock:
            if not self._work or not self._latest:
                return self._usual
            in_use = max(self._latest, self._usual)
            if self._decoded_meanwhile(in_use) < 2 * in_use:  # the storage is quick
                return min(2 * self._usual, max(self._usual, self._memory // 4))
            needed = self._decoded_meanwhile(self._usual) + _SPARE_REQUESTS * self._usual
            return self._usual if needed <= self._memory else self._usual // 2

    def _decoded_meanwhile(self, size: int) -> float:
        """Estimate how many bytes are decoded while one request of `size` bytes is in flight."""
        seconds_per_byte = sum(seconds for _, seconds in self._work) / max(sum(size for size, _ in self._work), 1)
        return self._seconds(size) / max(seconds_per_byte, _MIN_SECONDS_PER_BYTE)

    def _seconds(self, size: int) -> float:
        """Estimate the seconds that a request of `size` bytes takes.

        A larger request takes longer, at most in proportion to its size.
        """
        seconds_of_latest = min(seconds for _, seconds in self._requests[self._latest])
        if size not in self._requests:
            return seconds_of_latest
        shortest, longest = sorted((seconds_of_latest, seconds_of_latest * size / self._latest))
        return min(max(min(seconds for _, seconds in self._requests[size]), shortest), longest)

    def record_response(self, size: int, seconds: float, work: tuple[int, float] | None, busy_answers: int) -> None:
        """Record that the decoder has received a response, and adapt the maximum number of requests.

        Args:
            size: number of bytes of the response.
            seconds: seconds from the request's start to the end of the response.
            work: bytes of the response before this one, and how many seconds the decoder worked on them; None if this
                is the first response.
            busy_answers: how often the storage has asked for fewer requests so far (S3: 503 SlowDown).
        """
        with self._lock:
            self._latest = self._requested_size(size)
            self._requests.setdefault(self._latest, deque(maxlen=_RECENT)).append((size, seconds))
            if work is not None:
                self._work.append(work)
            if self._busy_answers is not None and busy_answers > self._busy_answers:
                self._allowed, self._since_busy = max(1, self._size() // 2), 0
            elif (since := self._since_busy + 1) >= self._allowed:
                # As many responses as requests are allowed came without a SlowDown: allow one more request.
                self._allowed, self._since_busy = min(self._allowed + 1, self._max_allowed), 0
            else:
                self._since_busy = since
            self._busy_answers = busy_answers

    def _requested_size(self, size: int) -> int:
        """Return the smallest of the three request sizes that is at least `size`; if no size is, return the largest."""
        sizes = (self._usual // 2, self._usual, 2 * self._usual)
        return next((requested for requested in sizes if size <= requested), sizes[-1])


_windows: PerProcess[RequestWindow] = PerProcess()


def window_for(options: Options) -> RequestWindow:
    """Return the process's shared request window for the storage, the fetcher class and the fetch options.

    The window keeps the speeds that earlier tasks of the process have measured.
    """
    key = {"storage": options.storage, "class": options.fetcher_class, "fetch": options.fetch}
    return _windows.get(key, lambda: RequestWindow(options.fetch))
