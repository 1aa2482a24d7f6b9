"""Data files into S3, each by one PUT, while the task reads on.

What pyarrow would send is signed chunk by chunk, which costs the client a hash of every byte. Parts would cost a
service that joins them a second copy: 1 CPU second a GiB (versitygw). So a file waits until it is whole: a small one
in memory, a larger one on the local disk, as with Hadoop's S3A.
"""

from __future__ import annotations

import base64
import io
import os
import random
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

import google_crc32c
from botocore import UNSIGNED
from botocore import exceptions as aws
from botocore.config import Config

from tiered_stream.delta.file_systems import region_of
from tiered_stream.delta.ingest_settings import TableFiles, TableStorage
from tiered_stream.delta.upload_threads import SMALL_IN_FLIGHT, UploadThreads
from tiered_stream.process import PerProcess, muted
from tiered_stream.storage.object_store import ATTEMPTS
from tiered_stream.storage.s3_store import LOGGERS_WITH_SECRETS, s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MEMORY_BYTES = 8 << 20
"""Of one file; a larger one is on the disk."""
_AT_A_TIME = 1 << 20


class S3Uploads:
    """One task's files of a table, see `file_systems.DataFolder`."""

    most_bytes = 4 << 30  # by one PUT S3 takes 5 GiB, and a row group may come on top

    def __init__(self, files: TableFiles, threads: UploadThreads) -> None:
        parts, storage = urlsplit(files.uri), files.storage
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._client = _clients.get(storage, lambda: _make_client(storage))
        self._asked: Any = storage.asked_of_objects()
        self._threads = threads
        self._running: list[Future[None]] = []

    def open(self, path: str) -> WaitingFile:
        """A new file, without a name: it goes with the task."""
        return WaitingFile()

    def grown(self, file: Any) -> None:
        """All of it is wanted again, to be uploaded."""

    def waiting_bytes(self, file: Any) -> int:
        """What of it is in memory."""
        size = int(file.tell())
        return size if size <= MEMORY_BYTES else 0

    def finish(self, path: str, file: WaitingFile) -> None:
        """Begin to upload the file; returns when it is on its way.

        Raises:
            OSError: one of those before could not be uploaded.
        """
        while self._running and self._running[0].done():
            self._running.pop(0).result()
        self._running.append(self._threads.begin(file.tell(), partial(self._put, path, file)))

    def wait(self) -> None:
        """Wait until all files are uploaded; errors as `finish`."""
        while self._running:
            self._running.pop(0).result()

    def close(self) -> None:
        """Upload nothing more."""
        for each in self._running:
            each.cancel()

    def _put(self, path: str, file: WaitingFile) -> None:
        key = f"{self._prefix}/{path}" if self._prefix else path
        try:
            with file, muted(*LOGGERS_WITH_SECRETS):
                file.seek(0)
                body = cast(IO[bytes], _Body(file))
                self._client.put_object(
                    Bucket=self._bucket, Key=key, Body=body, ChecksumCRC32C=file.checksum(), **self._asked
                )
        except (aws.BotoCoreError, aws.ClientError) as error:  # as pyarrow's file systems would raise it
            raise OSError(f"s3://{self._bucket}/{key} could not be uploaded: {error}") from error


class WaitingFile(SpooledTemporaryFile[bytes]):
    """A file until it is uploaded. It is only appended to, and what was written is what has to arrive."""

    def __init__(self) -> None:
        super().__init__(MEMORY_BYTES, dir=_local_folder())
        self._crc = 0

    def write(self, data: Any) -> int:
        self._crc = google_crc32c.extend(self._crc, data)
        return super().write(data)

    def checksum(self) -> str:
        """As the header `x-amz-checksum-crc32c` has it; a service that does not know it lets it be."""
        return base64.b64encode(self._crc.to_bytes(4)).decode()


def _local_folder() -> str | None:
    """One of the folders that Spark gives its tasks; None: Python's own choice."""
    folders = [each for each in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(each)]
    return random.choice(folders) if folders else None


class _Body(io.RawIOBase):
    """Reads a file. HTTP's client asks for 16 KiB at a time, which would be a call for each: it gets more."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        return self._file.read(max(size, _AT_A_TIME))

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)


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
