"""Folder of a table to which tasks write data files, and a local folder, whose files grow there."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

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
