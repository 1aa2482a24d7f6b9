"""Interface of an object store, with only the operations that this package needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tiered_stream.data_limits import Limit
from tiered_stream.errors import (
    CorruptDataError,
    StorageConnectTimeoutError,
    StorageError,
    StorageReadTimeoutError,
    StorageUnavailableError,
)
from tiered_stream.model import ByteRange

if TYPE_CHECKING:
    from mmap import mmap

ATTEMPTS = 4
"""Maximum number of times that a request is sent, if the service does not ask for fewer requests.

A request is sent again, for example, if the service responds with 429 or 503, or if the connection breaks.
"""

UPLOAD_SECONDS = 900
"""Maximum time limit in seconds of an attempt of an upload; after this time, no further attempt begins."""

SLOW_DOWN = (429, 503)
"""HTTP statuses with which a service asks for fewer requests (S3: SlowDown)."""

MAX_CONNECTIONS = 64
"""Maximum number of connections that one process keeps open to one store.

The same number is the maximum of `remote.fetch.requests.in.flight`.
"""


class ObjectStore(ABC):
    """Reader of the objects under one root: a bucket, a prefix in a bucket, or a folder.

    Keys are relative to the root, with parts divided by `/`. Many threads may use one store. Every method raises one of
    the subclasses of `StorageError`: `StorageObjectNotFoundError` (no such bucket or object), `StorageAccessError`
    (credentials), `StorageUnavailableError` (out of reach after all retries, with two subclasses for timeouts).
    """

    writes_in_place: ClassVar[bool] = False
    """True if the store shows objects that are still being written, with fewer bytes."""

    before_request: Callable[[], object] = staticmethod(lambda: None)
    """Function that is called in the request's thread before each request, such as a request for a page of a listing.

    It may wait, so that all threads together do not exceed a rate of requests.
    """

    @abstractmethod
    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        """Return exactly the bytes of the range `extent`, or the whole object if `extent` is a limit of its size.

        Raises:
            CorruptDataError: the object ends before the range does.
            DataLimitError: the object has more bytes than the limit.
        """

    @abstractmethod
    def size(self, key: str) -> int:
        """Return the object's size in bytes; a missing object raises StorageObjectNotFoundError."""

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Yield, in the store's order, the keys that begin with `prefix` and come after `after`.

        Most stores order keys as texts. Azure's accounts with a hierarchical namespace order them folder by folder, so
        that `a/b` comes before `a-b/c`.

        Only archives, and errors that say where objects are, need a listing. Otherwise keys follow from segments'
        metadata.
        """

    @abstractmethod
    def describe(self, key: str) -> str:
        """Return the object's full name for messages, such as `s3://bucket/key`."""

    def signed_url(self, key: str, seconds: int) -> str | None:
        """Return a URL with which anyone can GET the object for `seconds` seconds, or None if the store cannot sign.

        No request for the object is sent.
        """
        return None

    def signing_seconds_left(self) -> float:
        """Return the seconds until the credentials that sign URLs expire, and the URLs with them; infinity: never."""
        return inf

    def slow_down_responses(self) -> int:
        """Return the number of responses with status 429 or 503 so far, including responses to repeated requests."""
        return 0


class WritableStore(ObjectStore):
    """Object store to which tasks write objects, each as a whole."""

    def put(self, key: str, data: bytes | mmap) -> None:
        """Write an object, which replaces an object of the same key."""
        self._write_in_time(key, data, overwrite=True)

    def create(self, key: str) -> bool:
        """Write an empty object if there is no object of this key; return whether it was written.

        If the response to an attempt was lost, the result is False although this call has written the object.
        """
        return self._write_in_time(key, b"", overwrite=False)

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object. A missing object is no error."""

    @abstractmethod
    def _write(self, key: str, data: bytes | mmap, *, overwrite: bool) -> bool:
        """Write an object, and return True. Return False if the object exists and `overwrite` is false."""

    def _write_in_time(self, key: str, data: bytes | mmap, *, overwrite: bool) -> bool:
        try:
            return self._write(key, data, overwrite=overwrite)
        except (StorageConnectTimeoutError, StorageReadTimeoutError):  # whose texts name options of segments
            raise StorageUnavailableError(
                f"{self.describe(key)} with {len(data)} bytes was not written in time; check the connection to the "
                "storage"
            ) from None


def range_in(extent: ByteRange | Limit, size: int, name: str) -> ByteRange:
    """Return the range that `extent` asks for in an object of `size` bytes: the whole object if `extent` is a limit.

    Args:
        name: full name of the object.

    Raises:
        CorruptDataError: the object ends before the range does.
        DataLimitError: the object has more bytes than the limit.
    """
    if isinstance(extent, Limit):
        extent.check(size, f"the bytes of {name}")
        return ByteRange(0, size)
    if extent.end > size:
        raise too_short(name, extent, size)
    return extent


def in_one_buffer(chunks: Iterable[bytes], byte_range: ByteRange, name: str) -> memoryview:
    """Return the chunks of a body, joined in one buffer.

    Clients in Rust would join a large body while they hold Python's lock, or copy it several times into memory that the
    kernel has to give each time. NumPy copies each chunk without the lock.

    Args:
        byte_range: range of the object that the body has.
        name: full name of the object.

    Raises:
        StorageError: the body is longer than the range.
        CorruptDataError: the body is shorter than the range.
    """
    buffer, end = np.empty(len(byte_range), np.uint8), 0
    for chunk in chunks:
        part = np.frombuffer(chunk, np.uint8)
        start, end = end, end + len(part)
        if end > len(buffer):
            raise StorageError(f"more than {len(buffer)} bytes came for {name}")
        buffer[start:end] = part
    if end < len(buffer):
        raise too_short(name, byte_range, byte_range.start + end)
    return buffer.data


def too_short(name: str, byte_range: ByteRange, size: int) -> CorruptDataError:
    """Return the error for an object that ends before `byte_range` does.

    Args:
        name: full name of the object.
        size: actual size of the object in bytes.
    """
    return CorruptDataError(
        f"{name} has {size} bytes, but bytes {byte_range.start} to {byte_range.end} (exclusive) were wanted: "
        "it was truncated, or is not the object that the segment's metadata describes"
    )


def keys_below(
    entries: Callable[[str], Iterable[str]], prefix: str, after: str, folder: str | None = None
) -> Iterator[str]:
    """Yield the keys in a tree of folders that begin with `prefix` and come after `after`, as `ObjectStore.list` does.

    Only folders that may have such keys are read.

    Args:
        entries: returns the names in a folder; names of folders end with a slash. Its argument is the folder's path,
            which is empty or ends with a slash.
        folder: folder to begin in; None: the folder of `prefix`.
    """
    folder = prefix[: prefix.rfind("/") + 1] if folder is None else folder
    for key in sorted(folder + name for name in entries(folder)):  # a folder's name is ordered with its slash
        if not key.endswith("/"):
            if key.startswith(prefix) and key > after:
                yield key
        elif key.startswith(prefix) and (key > after or after.startswith(key)):
            yield from keys_below(entries, prefix, after, key)
