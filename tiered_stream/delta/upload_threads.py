"""The threads by which one task uploads files, of however many tables: a few large ones at once, or some more small."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition

LARGE_IN_FLIGHT = 2
"""Files of one task that are uploaded at once; the next one waits before it is handed over."""
SMALL_IN_FLIGHT = 8
"""Where all of them together have no more than `SMALL_BYTES`: what a small file takes is the wait for an answer."""
SMALL_BYTES = 16 << 20


class UploadThreads:
    """Uploads of one task; whose they are is the caller's business."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SMALL_IN_FLIGHT, "upload")
        self._room = Condition()
        self._files = 0
        self._bytes = 0

    def begin(self, size: int, upload: Callable[[], None]) -> Future[None]:
        """Begin to upload a file of so many bytes; returns when there is room for it beside those on their way."""
        with self._room:
            self._room.wait_for(lambda: self._has_room(size))
            self._files += 1
            self._bytes += size
        future = self._threads.submit(upload)
        future.add_done_callback(lambda _: self._ended(size))
        return future

    def _has_room(self, size: int) -> bool:
        most = SMALL_IN_FLIGHT if self._bytes + size <= SMALL_BYTES else LARGE_IN_FLIGHT
        return self._files < most

    def _ended(self, size: int) -> None:
        with self._room:
            self._files -= 1
            self._bytes -= size
            self._room.notify()

    def close(self) -> None:
        """Begin no more uploads, and wait for those that have begun."""
        self._threads.shutdown(wait=True, cancel_futures=True)
