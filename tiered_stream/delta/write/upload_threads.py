"""Threads with which a task uploads the files of all its tables: 2 large files at once, or up to 8 small files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition

LARGE_IN_FLIGHT = 2
"""Maximum number of uploads at once if their files have more than `SMALL_BYTES` together; further files wait."""
SMALL_IN_FLIGHT = 8
"""Maximum number of uploads at once if their files have at most `SMALL_BYTES` together.

The number is higher than `LARGE_IN_FLIGHT`, because the upload of a small file mostly waits for the response.
"""
SMALL_BYTES = 16 << 20


class UploadThreads:
    """Thread pool for the uploads of one task.

    `LARGE_IN_FLIGHT` and `SMALL_IN_FLIGHT` limit how many uploads run at once.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SMALL_IN_FLIGHT, "upload")
        self._room = Condition()
        self._files = 0
        self._bytes = 0

    def begin(self, size: int, upload: Callable[[], None]) -> Future[None]:
        """Wait until the limit of uploads allows one more file of `size` bytes, then let a thread call `upload`.

        The method does not wait for the end of the upload.

        Returns:
            Future of the upload; its `result` raises the error of `upload` if there is one.
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
        """Cancel the uploads that have not started, wait for the end of the other uploads, and stop the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)
