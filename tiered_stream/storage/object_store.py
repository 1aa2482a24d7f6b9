"""An object store, as narrow as it is needed: a key, and a byte range of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tiered_stream.errors import CorruptDataError
from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange

ATTEMPTS = 4
"""How often a request is made in all when the service answers 429, 500, 502, 503 or 504, or drops the connection.

(A GET of a range in S3 may be made once more, as `s3_ranges.py` asks first.)
"""

SLOW_DOWN = (429, 503)
"""Statuses by which a service asks for fewer requests (S3: SlowDown)."""

MAX_CONNECTIONS = 64
"""Connections that one process keeps open to one store: as many as `remote.fetch.requests.in.flight` may be."""


class ObjectStore(ABC):
    """Reads the objects under one root: a bucket (and prefix in it), or a folder.

    Keys are relative to that root, parts divided by `/`. One store serves many threads at once. Every method raises
    `StorageError`: `StorageObjectNotFoundError` (no such bucket or object), `StorageAccessError` (credentials),
    `StorageUnavailableError` (out of reach, after all retries), its two timeouts among them.
    """

    @abstractmethod
    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        """Exactly the bytes of a range; with a limit the whole object.

        Raises:
            CorruptDataError: the object ends before the range does.
            DataLimitError: the object has more bytes than the limit.
        """

    @abstractmethod
    def size(self, key: str) -> int:
        """The object's size in bytes."""

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """The keys that begin with `prefix` and are greater than `after`.

        For an archive, and for errors that say where objects are: elsewhere metadata says what there is.
        """

    @abstractmethod
    def describe(self, key: str) -> str:
        """The object's full name for messages, as `s3://bucket/key`."""

    def signed_url(self, key: str, seconds: int) -> str | None:
        """A URL with which anyone may GET the object for so many seconds; None: this store has none. No request."""
        return None

    def busy_answers(self) -> int:
        """How often the service has answered 429 or 503 so far, retries included."""
        return 0

    def close(self) -> None:  # noqa: B027 - a store without connections has nothing to close
        """Let go of connections."""


def too_short(name: str, wanted: ByteRange, size: int) -> CorruptDataError:
    """The error for an object `name` of `size` bytes that ends before `wanted` does."""
    return CorruptDataError(
        f"{name} has {size} bytes, but bytes {wanted.start} to {wanted.end} (exclusive) were wanted: "
        "it was truncated, or is not the object that the segment's metadata describes"
    )
