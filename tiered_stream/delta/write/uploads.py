"""Uploads of data files to an object store, each with one request, while the task continues to read.

A multipart upload would cost a second copy in services that join the parts: 1 CPU second for each GiB (versitygw). So a
file waits until it is complete: a small file in memory, a larger file on the local disk, as in Hadoop's S3A. A task
uploads 2 large files at once, or up to 8 small files, of all its tables.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from tempfile import SpooledTemporaryFile
from threading import Condition
from typing import Any

from tiered_stream.delta.write.data_folder import DataFolder

MEMORY_BYTES = 8 << 20
"""Maximum bytes of a waiting file that is kept in memory; a larger file is on the local disk."""
LARGE_IN_FLIGHT = 2
"""Maximum number of uploads at once if their files have more than `SMALL_BYTES` together; further files wait."""
SMALL_IN_FLIGHT = 8
"""Maximum number of uploads at once if their files have at most `SMALL_BYTES` together.

The number is higher than `LARGE_IN_FLIGHT`, because the upload of a small file mostly waits for the response.
"""
SMALL_BYTES = 16 << 20


class WaitingFile(SpooledTemporaryFile[bytes]):
    """File that waits for its upload in memory or, if it is large, on the local disk.

    A file on disk has no name, so it disappears with the task.
    """

    def __init__(self) -> None:
        super().__init__(MEMORY_BYTES, dir=_local_folder())


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


class Uploads(DataFolder):
    """Uploads of the data files that one task writes to a table's folder in an object store.

    `prefix` is the folder's key prefix, with or without slashes at its ends.
    """

    def __init__(self, prefix: str, threads: UploadThreads) -> None:
        self._prefix = prefix.strip("/")
        self._threads = threads
        self._running: list[Future[None]] = []

    def upload(self, key: str, file: Any) -> None:
        """Upload a file that `open` returned as the object `key`, and close the file.

        Raises:
            OSError: the file could not be uploaded.
        """
        raise NotImplementedError

    def waiting_bytes(self, file: Any) -> int:
        """Return how many bytes of the file are in memory; 0 if the file is on the local disk."""
        size = int(file.tell())
        return size if size <= MEMORY_BYTES else 0

    def finish(self, path: str, file: Any) -> None:
        """Start the upload of the file to `path`, after waiting until other uploads of the task leave room for it.

        Raises:
            OSError: an earlier file could not be uploaded.
        """
        while self._running and self._running[0].done():
            self._running.pop(0).result()
        key = f"{self._prefix}/{path}" if self._prefix else path
        self._running.append(self._threads.begin(file.tell(), partial(self.upload, key, file)))

    def wait(self) -> None:
        """Wait until all files are uploaded. Raise OSError if a file could not be uploaded."""
        while self._running:
            self._running.pop(0).result()

    def close(self) -> None:
        """Cancel all uploads that have not started."""
        for upload in self._running:
            upload.cancel()


def _local_folder() -> str | None:
    """Return one of the local folders that Spark gives its tasks, chosen at random; None: Python chooses the folder."""
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(folder)]
    return random.choice(folders) if folders else None
