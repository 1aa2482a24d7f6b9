"""Threads with which a task uploads the files of all its tables: 2 large files at once, or up to 8 small files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition

LARGE_IN_FLIGHT = 2
"""Maximum number of large files that a task uploads at once; the next file waits before its upload begins."""
SMALL_IN_FLIGHT = 8
"""Maximum number of uploads at once if all files together have at most `SMALL_BYTES`.

More are allowed because the upload of a small file mostly waits for the response."""
SMALL_BYTES = 16 << 20


class UploadThreads:
    """Threads and limits for one task's uploads; the caller keeps track of the uploads' futures."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SMALL_IN_FLIGHT, "upload")
        self._room = Condition()
        self._files = 0
        self._bytes = 0

    def begin(self, size: int, upload: Callable[[], None]) -> Future[None]:
        """Wait until other uploads leave room for a file of `size` bytes, then start its upload; return its future."""
        with self._room:
            self._room.wait_for(lambda: self._has_room(size))
            self._files += 1
            self._bytes += size
        future = self._threads.submit(upload)
        future.add_done_callback(lambda _: self._ended(size))
        return future

    def _has_room(self, size: int) -> bool:
        limit = SMALL_IN_FLIGHT if self._bytes + size <= SMALL_BYTES else LARGE_IN_FLIGHT
        return self._files < limit

    def _ended(self, size: int) -> None:
        with self._room:
            self._files -= 1
            self._bytes -= size
            self._room.notify()

    def close(self) -> None:
        """Cancel uploads that have not started, and wait for uploads that have."""
        self._threads.shutdown(wait=True, cancel_futures=True)
