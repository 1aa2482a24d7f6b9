"""Uploads of data files to S3, each with one PUT and its checksum.

The checksum is a CRC32C, or an MD5 digest for S3 services that refuse the header of a CRC32C. The S3 client of pyarrow
is not used, because it signs each chunk, which takes another hash of every byte.
"""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import google_crc32c
from botocore import exceptions as aws
from botocore.config import Config

from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.delta.write.data_folder import SMALL_IN_FLIGHT, Uploads, UploadThreads, WaitingFile
from tiered_stream.errors import StorageError
from tiered_stream.process.caches import PerProcess
from tiered_stream.process.logs import muted
from tiered_stream.storage.object_store import ATTEMPTS
from tiered_stream.storage.s3_client import LOGGERS_WITH_SECRETS, table_session

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_READ_BYTES = 1 << 20
_WAIT_SECONDS = 60
"""Seconds for which an upload may wait to send bytes, and for the response: a service first stores the whole object."""
_HEADER = "x-amz-checksum-"
"""Text in errors of S3 services that refuse the header of a CRC32C with another status than 501 (not implemented)."""


class S3Uploads(Uploads):
    """Folder of a table in S3, to which one task uploads its data files, each with one PUT."""

    max_bytes = 4 << 30  # S3 accepts 5 GiB in one PUT, and one more row group may follow

    def __init__(self, spec: TableSpec, threads: UploadThreads) -> None:
        parts, storage = urlsplit(spec.uri), spec.storage
        super().__init__(parts.path, threads)
        self._bucket = storage.s3_access_point or parts.netloc
        access = {"storage": storage, "bucket": parts.netloc}
        self._client = _clients.get(access, lambda: _make_client(storage, parts.netloc))
        self._object_arguments: Any = storage.put_object_arguments()
        self._knows_crc = True

    def open(self, path: str) -> ChecksummedFile:
        """Open a new file, which waits for its upload."""
        return ChecksummedFile()

    def upload(self, key: str, file: ChecksummedFile) -> None:
        try:
            with file, muted(*LOGGERS_WITH_SECRETS):
                if not (self._knows_crc and self._put(key, file, ChecksumCRC32C=file.checksum())):
                    self._knows_crc = False
                    self._put(key, file, ContentMD5=file.md5())
        except (aws.BotoCoreError, aws.ClientError, StorageError) as error:
            # OSError, as pyarrow's file systems raise it
            raise OSError(f"s3://{self._bucket}/{key} could not be uploaded: {error}") from error

    def _put(self, key: str, file: ChecksummedFile, **checksum: str) -> bool:
        """Upload the object with one PUT, and return True; False if the service refuses the header of a CRC32C.

        `checksum` is the checksum as an argument of boto3's `put_object`. Other errors of boto3 are raised unchanged.
        """
        file.seek(0)
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=file, **checksum | self._object_arguments)
        except aws.ClientError as error:
            is_new = error.response["ResponseMetadata"]["HTTPStatusCode"] == 501
            if "ChecksumCRC32C" in checksum and (is_new or _HEADER in str(error)):
                return False
            raise
        return True


class ChecksummedFile(WaitingFile):
    """Append-only file that waits for its upload, with a CRC32C of all written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._crc = 0

    def write(self, data: Any) -> int:
        self._crc = google_crc32c.extend(self._crc, data)
        return super().write(data)

    def read(self, size: int = -1) -> bytes:
        """Return up to `_READ_BYTES`, even if fewer are asked for: the HTTP client asks for 16 KiB at a time."""
        return super().read(max(size, _READ_BYTES))

    def checksum(self) -> str:
        """Return the CRC32C of all written bytes in base64, for the header `x-amz-checksum-crc32c`.

        Most S3 services that do not know this header ignore it.
        """
        return base64.b64encode(self._crc.to_bytes(4)).decode()

    def md5(self) -> str:
        """Return the MD5 digest of all written bytes in base64, for the header `Content-MD5`."""
        self.seek(0)
        digest = hashlib.file_digest(cast(Any, self), partial(hashlib.md5, usedforsecurity=False))
        return base64.b64encode(digest.digest()).decode()


_clients: PerProcess[S3Client] = PerProcess()
"""S3 clients, which all tasks of a process share, because creating a client takes longer than uploading a small file.

A shared client also keeps its connections open.
"""


def _make_client(storage: TableStorage, bucket: str) -> S3Client:
    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=_WAIT_SECONDS,  # urllib3 limits the wait to send bytes by this one
        read_timeout=_WAIT_SECONDS,
        max_pool_connections=SMALL_IN_FLIGHT,
        request_checksum_calculation="when_required",
    )
    try:
        with muted(*LOGGERS_WITH_SECRETS):
            return table_session(storage, bucket).client(config)
    except StorageError as error:
        raise OSError(str(error)) from error
