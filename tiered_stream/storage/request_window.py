"""Choice of the number and the size of GETs to have in flight, from measured speeds of storage and decoder.

The decoder should not wait for responses, and responses should not use more memory than needed.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean
from threading import RLock

from tiered_stream.options.parsing import FetchOptions, Options
from tiered_stream.process.caches import PerProcess

FIRST_REQUESTS = 8
"""Number of requests in flight before anything is known of storage and decoder."""
_SPARE_REQUESTS = 3
"""Number of requests in addition to the number that keeps the decoder busy.

Two of their responses wait for the decoder, because speeds vary. The third request is the next one. If requests have
twice the usual size, there is one request less, because each waiting response uses twice the memory.
"""
_QUICK = 2
"""Ratio of a request's time per byte to the decoder's time per byte, below which the storage counts as quick.

Requests to a quick storage have twice the usual size.
"""
_RECENT = 16
"""Number of recent responses from which speeds are estimated."""
_MIN_SECONDS_PER_BYTE = 1e-9
"""Lower bound of the seconds that the decoder works on one byte."""


class RequestWindow:
    """Chooser of the number of GETs to send before the decoder needs their bytes (at least 1), and of their size.

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
        self._lock = RLock()
        self._usual = options.request_bytes
        self._memory = options.memory_bytes
        self._max_allowed = self._allowed = options.in_flight + _SPARE_REQUESTS
        self._responses: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        """Bytes of recent responses, and seconds of their requests."""
        self._work: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        """Bytes and seconds of the decoder's recent work."""
        self._slow_down_responses: int | None = None
        self._since_busy = 0

    @property
    def size(self) -> int:
        """Maximum number of requests that are in flight or have a response that waits for the decoder."""
        with self._lock:
            if (ratio := self._ratio()) is None:
                return min(FIRST_REQUESTS, self._allowed)
            are_large = fmean(size for size, _ in self._responses) > self._usual
            # More than the ratio is needed, because neither storage nor decoder is steady.
            return int(min(self._allowed, 1.5 * ratio + _SPARE_REQUESTS - are_large))

    def request_bytes(self) -> int:
        """Return the maximum size in bytes of the next request: half of, once, or twice the option `request_bytes`."""
        with self._lock:
            ratio = self._ratio()
        if ratio is None:
            return self._usual
        if ratio < _QUICK:
            return min(2 * self._usual, max(self._usual, self._memory // 4))
        return self._usual if (ratio + _SPARE_REQUESTS) * self._usual <= self._memory else self._usual // 2

    def _ratio(self) -> float | None:
        """Return a request's time for one byte, divided by the decoder's time for one byte; None: not known yet."""
        if not self._work or not self._responses:
            return None
        decoded = sum(seconds for _, seconds in self._work) / max(sum(size for size, _ in self._work), 1)
        return min(seconds / max(size, 1) for size, seconds in self._responses) / max(decoded, _MIN_SECONDS_PER_BYTE)

    def record_response(
        self, size: int, seconds: float, work: tuple[int, float] | None, slow_down_responses: int
    ) -> None:
        """Record that the decoder has received a response, and adapt the maximum number of requests.

        Args:
            size: number of bytes of the response.
            seconds: seconds from the request's start to the end of the response.
            work: bytes of the response before this one, and how many seconds the decoder worked on them; None if this
                is the first response.
            slow_down_responses: how often the storage has asked for fewer requests so far (S3: 503 SlowDown).
        """
        with self._lock:
            self._responses.append((size, seconds))
            if work is not None:
                self._work.append(work)
            if self._slow_down_responses is not None and slow_down_responses > self._slow_down_responses:
                self._allowed, self._since_busy = max(1, self.size // 2), 0
            elif (since := self._since_busy + 1) >= self._allowed:
                # As many responses as requests are allowed came without a SlowDown: allow one more request.
                self._allowed, self._since_busy = min(self._allowed + 1, self._max_allowed), 0
            else:
                self._since_busy = since
            self._slow_down_responses = slow_down_responses


_windows: PerProcess[RequestWindow] = PerProcess()


def window_for(options: Options) -> RequestWindow:
    """Return the process's shared limit of concurrent requests to one storage, with one class of fetcher and settings.

    The options name the storage. The limit follows the speeds that earlier tasks of the process have measured.
    """
    key = {"storage": options.storage, "class": options.fetcher_class, "fetch": options.fetch}
    return _windows.get(key, lambda: RequestWindow(options.fetch))
