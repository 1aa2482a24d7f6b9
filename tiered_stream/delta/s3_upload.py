"""Data files into S3, each by one PUT, while the task reads on.

A stream of signed parts costs the client a hash of every byte and the service a second copy of them: of 1 GiB, 1.1 and
4.7 CPU seconds, and by one PUT a file 0.3 and 3.0 (versitygw). So a file waits in memory until it is whole.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import IO, TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

from botocore import UNSIGNED
from botocore import exceptions as aws
from botocore.config import Config

from tiered_stream.delta.file_systems import region_of
from tiered_stream.delta.ingest_settings import TableStorage
from tiered_stream.delta.upload_threads import SMALL_IN_FLIGHT, UploadThreads
from tiered_stream.process import PerProcess, muted
from tiered_stream.storage.object_store import ATTEMPTS
from tiered_stream.storage.s3_store import LOGGERS_WITH_SECRETS, s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MOST_BYTES = 128 << 20
"""Of a file in memory."""


class S3Uploads:
    """One task's files of a table (see `file_systems.DataFolder`). `folder` is the table's, `s3://bucket/prefix`."""

    in_memory = True

    def __init__(self, folder: str, storage: TableStorage, threads: UploadThreads) -> None:
        parts = urlsplit(folder)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        over_tls = not (storage.s3_endpoint_url or "").startswith("http:")
        # What TLS does not protect carries a CRC of its own; not every service knows those that come after the body.
        self._checksum: dict[str, Any] = {} if over_tls else {"ChecksumAlgorithm": "CRC32"}
        self._client = _clients.get(storage, lambda: _make_client(storage))
        self._threads = threads
        self._running: list[Future[None]] = []

    def open(self, path: str) -> _File:
        """A new file, in memory."""
        return _File()

    def finish(self, path: str, file: Any) -> None:
        """Begin to upload the file; returns when it is on its way.

        Raises:
            OSError: one of those before could not be uploaded.
        """
        while self._running and self._running[0].done():
            self._running.pop(0).result()
        self._running.append(self._threads.begin(file.tell(), partial(self._put, path, file.writes)))

    def wait(self) -> None:
        """Wait until all files are uploaded; errors as `finish`."""
        while self._running:
            self._running.pop(0).result()

    def close(self) -> None:
        """Upload nothing more."""
        for each in self._running:
            each.cancel()

    def _put(self, path: str, writes: Sequence[bytes]) -> None:
        key = f"{self._prefix}/{path}" if self._prefix else path
        body = cast(IO[bytes], _Body(writes))
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **self._checksum)
        except (aws.BotoCoreError, aws.ClientError) as error:  # as pyarrow's file systems would raise it
            raise OSError(f"s3://{self._bucket}/{key} could not be uploaded: {error}") from error


class _File(io.RawIOBase):
    """A file in memory, as the bytes of each write: these are what is sent, and nothing is copied in between."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.writes.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size


class _Body(io.RawIOBase):
    """Reads what was written. HTTP's client asks for 16 KiB at a time, which would be a call for each: it gets more."""

    def __init__(self, writes: Sequence[bytes]) -> None:
        self._writes = writes
        self._starts = [0, *accumulate(map(len, writes))]
        self._next = 0

    def read(self, size: int = -1) -> bytes:
        if self._next == len(self._writes):
            return b""
        self._next += 1
        return self._writes[self._next - 1]

    def tell(self) -> int:
        return self._starts[self._next]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """To the start of a write, or to the end."""
        self._next = len(self._writes) if whence == io.SEEK_END else self._starts.index(offset)
        return self.tell()


_clients: PerProcess[S3Client] = PerProcess()
"""To make one takes longer than a small file, and connections are kept."""


def _make_client(storage: TableStorage) -> S3Client:
    style: Literal["virtual", "auto"] = "virtual" if storage.s3_endpoint_url else "auto"
    config = Config(
        signature_version=UNSIGNED if storage.anonymous else "s3v4",
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        max_pool_connections=SMALL_IN_FLIGHT,
        request_checksum_calculation="when_required",
        s3={"addressing_style": "path" if storage.s3_path_style else style, "payload_signing_enabled": False},
    )
    with muted(*LOGGERS_WITH_SECRETS):
        return s3_client(replace(storage, s3_region=region_of(storage)), config)
