"""A table's folder as tasks write data files to it: local files that grow, or uploads to S3."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from tiered_stream.delta.settings.ingest_settings import TableFiles
from tiered_stream.delta.write.upload_threads import UploadThreads

_CACHED_BYTES = 32 << 20
"""Bytes at the end of a growing file that stay in the page cache; a smaller file is left to the kernel."""
_MAX_WRITE_BACK_SHARE = 0.2
"""Maximum share of a task's time for dropping pages; beyond it the disk cannot keep up, and the kernel takes over."""


class DataFolder:
    """Folder of a table to which one task writes data files; paths are relative to it. Methods raise `OSError`."""

    max_bytes = sys.maxsize
    """Maximum size of one file in bytes; a file of this size must be finished."""

    def open(self, path: str) -> Any:
        """Open a new file, to which pyarrow can write."""
        raise NotImplementedError

    def finish(self, path: str, file: Any) -> None:
        """Finish a completely written file; it is in the folder once `wait` returns."""
        raise NotImplementedError

    def grown(self, file: Any) -> None:
        """Called after a row group was written to the file; a folder may free page cache then."""

    def waiting_bytes(self, file: Any) -> int:
        """Return how many bytes written to the file are still in memory."""
        return 0

    def wait(self) -> None:
        """Wait until all finished files are in the folder."""

    def close(self) -> None:
        """Release all resources; files that are not in the folder yet may be lost."""


def open_data_folder(files: TableFiles, threads: UploadThreads) -> DataFolder:
    """Return the table's folder for one task to write to; `threads` upload its files if the folder is in S3."""
    if urlsplit(files.uri).scheme == "s3":
        from tiered_stream.delta.write.s3_upload import S3Uploads

        return S3Uploads(files, threads)
    return _LocalFiles(Path(unquote(urlsplit(files.uri).path)))


class _LocalFiles(DataFolder):
    """Local folder of a table, to which files are written while they grow.

    Only the end of a large file stays in the page cache, so that files reuse the same few pages. Otherwise the pages of
    whole tables would displace other data. If a virtual machine first has to get pages from its host, they would cost
    more time than writing the table.
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
        """Drop the file's written-back pages from the page cache, except its end (posix_fadvise(2)).

        The call also starts the write-back of dirty pages, which the next call drops.
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
