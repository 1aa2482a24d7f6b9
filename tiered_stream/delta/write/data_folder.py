"""Folders of tables to which tasks write data files: local folders, whose files grow there, and uploads.

Uploads to S3 are in a module of their own (`s3_upload.py`).
"""

from __future__ import annotations

import mmap
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from threading import Semaphore
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import StorageError
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.object_store import WritableStore
from tiered_stream.storage.open_store import open_writable

_CACHED_BYTES = 32 << 20
"""Bytes at the end of a growing file that stay in the page cache; pages of a smaller file are left to the kernel."""
_MAX_WRITE_BACK_SHARE = 0.2
"""Maximum fraction of the time since a folder was opened that is spent on dropping pages from the page cache.

If the disk is so slow that the fraction is higher, no pages are dropped, and the kernel drops them later.
"""


class DataFolder:
    """Folder of a table to which one task writes data files; paths in all methods are relative to the folder.

    Methods raise OSError if the folder cannot be written to.
    """

    max_bytes = sys.maxsize
    """Size in bytes at which the writer must finish a file, and begin the next one."""

    def open(self, path: str) -> Any:
        """Open a new file with this path, to which pyarrow can write."""
        raise NotImplementedError

    def finish(self, path: str, file: Any) -> None:
        """Finish `file`, which `open` returned for `path`, and to which all bytes have been written.

        Only after a call of `wait` is the file certainly in the folder.
        """
        raise NotImplementedError

    def grown(self, file: Any) -> None:
        """Free page cache if possible; called after each row group of the file. The default does nothing."""

    def waiting_bytes(self, file: Any) -> int:
        """Return the number of bytes that were written to the file and are still in this process's memory."""
        return 0

    def wait(self) -> None:
        """Wait until all files that `finish` was called for are in the folder."""

    def close(self) -> None:
        """Release all resources; a file that is not in the folder yet may be lost."""


class LocalFolder(DataFolder):
    """Local folder of a table; each file is in the folder from its first byte on, and grows there.

    Only the end of a large file stays in the page cache, so that files reuse the same few pages. Otherwise the pages of
    whole tables would displace other data in the page cache. In a virtual machine that must get new pages from its
    host, getting these pages would take more time than writing the table.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun = perf_counter()
        self._writing_back = 0.0

    def open(self, path: str) -> pa.NativeFile:
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)  # a new table is created when its first files are committed
        return pa.OSFile(str(file), "wb")

    def grown(self, file: pa.NativeFile) -> None:
        """Drop the file's pages from the page cache, except the last `_CACHED_BYTES` bytes (posix_fadvise(2)).

        Only pages that are already on the disk are dropped. The kernel begins to write the other pages to the disk, so
        that the next call can drop them. If dropping pages takes too much time (`_MAX_WRITE_BACK_SHARE`), do nothing.
        """
        begin = perf_counter()
        past = file.tell() - _CACHED_BYTES
        keeps_up = self._writing_back <= (begin - self._begun) * _MAX_WRITE_BACK_SHARE
        if past > 0 and keeps_up and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # only advice, which some file systems do not accept
                os.posix_fadvise(file.fileno(), 0, past, os.POSIX_FADV_DONTNEED)
            self._writing_back += perf_counter() - begin

    def finish(self, path: str, file: pa.NativeFile) -> None:
        file.close()


# Uploads of data files to an object store, each with one request, while the task continues to read.
#
# A multipart upload would cost a second copy in services that join the parts: 1 CPU second for each GiB (versitygw). So
# a file waits until it is complete: a small file in memory, a larger file on the local disk, as in Hadoop's S3A. A task
# uploads 2 large files at once, or up to 8 small files, of all its tables.

MEMORY_BYTES = 8 << 20
"""Maximum bytes of a waiting file that is kept in memory; a larger file is on the local disk."""
LARGE_IN_FLIGHT = 2
"""Maximum number of uploads at once of files that have more than `SMALL_BYTES`; further files wait."""
SMALL_IN_FLIGHT = 8
"""Maximum number of uploads at once of files that have at most `SMALL_BYTES`. A larger file counts as 4 small files.

The number is higher than `LARGE_IN_FLIGHT`, because the upload of a small file mostly waits for the response.
"""
SMALL_BYTES = 2 << 20


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
        self._room = Semaphore(SMALL_IN_FLIGHT)

    def begin(self, size: int, upload: Callable[[], None]) -> Future[None]:
        """Wait until the limit of uploads allows one more file of `size` bytes, then let a thread call `upload`.

        The method does not wait for the end of the upload. Only one thread may call it.

        Returns:
            Future of the upload; its `result` raises the error of `upload` if there is one.
        """
        places = 1 if size <= SMALL_BYTES else SMALL_IN_FLIGHT // LARGE_IN_FLIGHT
        for _ in range(places):
            self._room.acquire()
        future = self._threads.submit(upload)
        future.add_done_callback(lambda _: self._room.release(places))
        return future

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
        """Upload `file`, which `open` returned, to the object `key`, and close the file.

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


_stores: PerProcess[WritableStore] = PerProcess()
"""Stores by bucket or container, which all tasks of a process share, so that connections stay open."""


class CloudUploads(Uploads):
    """Uploads of the data files that one task writes to a table's folder in Azure's or Google's storage or in HDFS."""

    max_bytes = 1 << 30  # at 1.2 MB/s, such a file is uploaded within the time limit of one attempt

    def __init__(self, spec: TableSpec, threads: UploadThreads) -> None:
        parts = urlsplit(spec.uri)
        super().__init__(parts.path, threads)
        options = spec.storage.at(f"{parts.scheme}://{parts.netloc}")
        self._store = _stores.get(options, lambda: open_writable(options, TABLES))

    def open(self, path: str) -> WaitingFile:
        """Open a new file, which waits for its upload."""
        return WaitingFile()

    def upload(self, key: str, file: WaitingFile) -> None:
        try:
            with file:
                self._store.put(key, _content(file))
        except StorageError as error:
            raise OSError(f"{key} could not be uploaded: {error}") from error


def _content(file: WaitingFile) -> bytes | mmap.mmap:
    """Return the bytes of the file. The bytes of a file on disk are mapped (mmap), not copied into memory."""
    if file.tell() > MEMORY_BYTES:
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    file.seek(0)
    return file.read()


def _local_folder() -> str | None:
    """Return one of the local folders that Spark gives its tasks, chosen at random.

    The result is None if Spark gives none, so that Python chooses the folder.
    """
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(folder)]
    return random.choice(folders) if folders else None
