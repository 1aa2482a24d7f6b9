"""Data files into S3 while the task reads on: a small one by one PUT, others in parts.

What pyarrow would send is signed chunk by chunk, which costs the client a hash of every byte. Here a part, or a small
file, waits in memory until it is whole, and its bytes go out as they were written: no copy, no hash but for a CRC where
TLS does not protect them. Parts have one size, since not every service takes others.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import IO, TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

from botocore import UNSIGNED
from botocore import exceptions as aws
from botocore.config import Config

from tiered_stream.delta.file_systems import region_of
from tiered_stream.delta.ingest_settings import TableStorage
from tiered_stream.delta.upload_threads import MOST_IN_FLIGHT, UploadThreads
from tiered_stream.process import PerProcess, muted
from tiered_stream.storage.object_store import ATTEMPTS
from tiered_stream.storage.s3_store import LOGGERS_WITH_SECRETS, s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedMultipartUploadTypeDef, CompletedPartTypeDef

PART_BYTES = 8 << 20
"""Of a file in memory; S3 takes 10,000 parts, of 5 MiB at least."""


class S3Uploads:
    """One task's files of a table (see `file_systems.DataFolder`). `folder` is the table's, `s3://bucket/prefix`."""

    def __init__(self, folder: str, storage: TableStorage, threads: UploadThreads) -> None:
        parts = urlsplit(folder)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        over_tls = not (storage.s3_endpoint_url or "").startswith("http:")
        # What TLS does not protect carries a CRC of its own; not every service knows those that come after the body.
        self._checksum = {} if over_tls else {"ChecksumAlgorithm": "CRC32"}
        self._client = _clients.get(storage, lambda: _make_client(storage))
        self._threads = threads
        self._files: dict[str, _File] = {}
        self._finishing: list[Future[None]] = []

    def open(self, path: str) -> _File:
        """A new file."""
        key = f"{self._prefix}/{path}" if self._prefix else path
        self._files[path] = _File(_Object(self._client, self._bucket, key, self._checksum), self._threads)
        return self._files[path]

    def waiting_bytes(self, file: Any) -> int:
        """What is no part yet."""
        return int(file.waiting_bytes)

    def finish(self, path: str, file: Any) -> None:
        """Begin to upload what is left of the file; returns when it is on its way.

        Raises:
            OSError: a part, or one of the files before, could not be uploaded.
        """
        while self._finishing and self._finishing[0].done():
            self._finishing.pop(0).result()
        self._finishing.append(file.finish())

    def wait(self) -> None:
        """Wait until all files are there; errors as `finish`."""
        while self._finishing:
            self._finishing.pop(0).result()
        self._files.clear()

    def close(self) -> None:
        """Upload nothing more; parts of files that are not there are taken back, as far as the service can be asked."""
        for each in self._finishing:
            each.cancel()
        for file in self._files.values():
            file.abandon()


@dataclass(frozen=True, slots=True)
class _Object:
    """Requests for one object; errors are `OSError`."""

    client: S3Client
    bucket: str
    key: str
    checksum: Mapping[str, Any]

    def put(self, writes: Sequence[bytes]) -> None:
        with self._requests() as where:
            self.client.put_object(**where, Body=_body(writes), **self.checksum)

    def begin(self) -> str:
        with self._requests() as where:
            return self.client.create_multipart_upload(**where, **self.checksum)["UploadId"]

    def put_part(self, upload: Future[str], number: int, writes: Sequence[bytes]) -> CompletedPartTypeDef:
        with self._requests() as where:
            answer = self.client.upload_part(
                **where, UploadId=upload.result(), PartNumber=number, Body=_body(writes), **self.checksum
            )
        part: CompletedPartTypeDef = {"PartNumber": number, "ETag": answer["ETag"]}
        if "ChecksumCRC32" in answer:
            part["ChecksumCRC32"] = answer["ChecksumCRC32"]
        return part

    def complete(self, upload: Future[str], parts: Sequence[Future[CompletedPartTypeDef]]) -> None:
        with self._requests() as where:
            whole: CompletedMultipartUploadTypeDef = {"Parts": [part.result() for part in parts]}
            self.client.complete_multipart_upload(**where, UploadId=upload.result(), MultipartUpload=whole)

    def abort(self, upload: Future[str]) -> None:
        with self._requests() as where:
            self.client.abort_multipart_upload(**where, UploadId=upload.result())

    @contextmanager
    def _requests(self) -> Iterator[dict[str, Any]]:
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                yield {"Bucket": self.bucket, "Key": self.key}
        except (aws.BotoCoreError, aws.ClientError) as error:  # as pyarrow's file systems would raise it
            raise OSError(f"s3://{self.bucket}/{self.key} could not be uploaded: {error}") from error


class _File(io.RawIOBase):
    """A file on its way. What waits is the bytes of each write: these are what is sent, and nothing is copied."""

    def __init__(self, target: _Object, threads: UploadThreads) -> None:
        self._target = target
        self._threads = threads
        self._writes: deque[bytes] = deque()
        self.waiting_bytes = 0
        self._size = 0
        self._upload: Future[str] | None = None
        self._parts: list[Future[CompletedPartTypeDef]] = []
        self._finished: Future[None] | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Raises OSError: a part could not be uploaded."""
        self._writes.append(bytes(data))
        self.waiting_bytes += len(data)
        self._size += len(data)
        while self.waiting_bytes >= PART_BYTES:
            self._begin_part(PART_BYTES)
        return len(data)

    def tell(self) -> int:
        return self._size

    def finish(self) -> Future[None]:
        """Upload what waits; what is returned ends when the object is there. Raises OSError as `write`."""
        if self._upload is None:
            size = self.waiting_bytes
            self._finished = self._threads.begin(size, partial(self._target.put, self._take(size)))
        else:
            if self.waiting_bytes:
                self._begin_part(self.waiting_bytes)
            # It waits for its parts in a thread: they are ahead of it, so each has one, or had.
            self._finished = self._threads.begin(0, partial(self._target.complete, self._upload, self._parts))
        return self._finished

    def abandon(self) -> None:
        """Unless the object is there: let go of what waits, and of the parts, once none is on its way."""
        waiting: list[Future[Any]] = [each for each in (self._upload, *self._parts, self._finished) if each]
        for each in waiting:
            each.cancel()
        wait(waiting)
        is_there = self._finished and not self._finished.cancelled() and not self._finished.exception()
        if self._upload and not self._upload.cancelled() and not is_there:
            with suppress(OSError):
                self._target.abort(self._upload)

    def _begin_part(self, size: int) -> None:
        if self._upload is None:
            self._upload = self._threads.begin(0, self._target.begin)
        for part in self._parts:
            if part.done():
                part.result()
        number, writes = len(self._parts) + 1, self._take(size)
        self._parts.append(self._threads.begin(size, partial(self._target.put_part, self._upload, number, writes)))

    def _take(self, size: int) -> list[bytes]:
        """The first so many bytes of what waits."""
        taken = []
        self.waiting_bytes -= size
        while size:
            first = self._writes.popleft()
            if len(first) > size:
                self._writes.appendleft(first[size:])
                first = first[:size]
            taken.append(first)
            size -= len(first)
        return taken


def _body(writes: Sequence[bytes]) -> IO[bytes]:
    return cast(IO[bytes], _Body(writes))


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
        max_pool_connections=MOST_IN_FLIGHT,
        request_checksum_calculation="when_required",
        s3={"addressing_style": "path" if storage.s3_path_style else style, "payload_signing_enabled": False},
    )
    with muted(*LOGGERS_WITH_SECRETS):
        return s3_client(replace(storage, s3_region=region_of(storage)), config)
