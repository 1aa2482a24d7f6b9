"""Threads with which a task uploads the files of all its tables: 2 large files at once, or up to 8 small files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition

LARGE_IN_FLIGHT = 2
"""Maximum number of uploads at once if all files together have more than `SMALL_BYTES`; other files wait."""
SMALL_IN_FLIGHT = 8
"""Maximum number of uploads at once if all files together have at most `SMALL_BYTES`.

It is higher, because the upload of a small file mostly waits for the response.
"""
SMALL_BYTES = 16 << 20


class UploadThreads:
    """Threads for one task's uploads, and limits of how many run at once; the caller waits for the uploads' futures."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SMALL_IN_FLIGHT, "upload")
        self._room = Condition()
        self._files = 0
        self._bytes = 0

    def begin(self, size: int, upload: Callable[[], None]) -> Future[None]:
        """Wait until other uploads leave room for a file of `size` bytes, then call `upload` in a thread.

        Returns:
            Future of the upload, which has the error if `upload` raises one.
        """
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
        """Cancel uploads that have not started, and wait for the end of uploads that have started."""
        self._threads.shutdown(wait=True, cancel_futures=True)
