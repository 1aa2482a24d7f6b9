"""The threads by which one task uploads, for however many tables."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from typing import TypeVar

T = TypeVar("T")

MOST_IN_FLIGHT = 8
"""Requests of one task at once: what a small one takes is the wait for an answer."""
MOST_BYTES = 256 << 20
"""Of all of them together; the next one waits before it is handed over. One alone may have more."""


class UploadThreads:
    """Uploads of one task; whose they are is the caller's business. They begin in the order in which they come."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST_IN_FLIGHT, "upload")
        self._room = Condition()
        self._requests = 0
        self._bytes = 0

    def begin(self, size: int, upload: Callable[[], T]) -> Future[T]:
        """Begin to upload so many bytes; returns when there is room for them beside those on their way."""
        with self._room:
            self._room.wait_for(lambda: self._has_room(size))
            self._requests += 1
            self._bytes += size
        future = self._threads.submit(upload)
        future.add_done_callback(lambda _: self._ended(size))
        return future

    def _has_room(self, size: int) -> bool:
        return self._requests == 0 or (self._requests < MOST_IN_FLIGHT and self._bytes + size <= MOST_BYTES)

    def _ended(self, size: int) -> None:
        with self._room:
            self._requests -= 1
            self._bytes -= size
            self._room.notify()

    def close(self) -> None:
        """Begin no more uploads, and wait for those that have begun."""
        self._threads.shutdown(wait=True, cancel_futures=True)
