"""Uploads of data files to Azure Blob Storage, Google Cloud Storage and HDFS."""

from __future__ import annotations

import mmap
from urllib.parse import urlsplit

from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_folder import MEMORY_BYTES, Uploads, UploadThreads, WaitingFile
from tiered_stream.errors import StorageError
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.object_store import WritableStore
from tiered_stream.storage.open_store import open_writable

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
    """Return the bytes of the file. A file on disk is mapped, so that it is not copied into memory."""
    if file.tell() > MEMORY_BYTES:
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    file.seek(0)
    return file.read()
