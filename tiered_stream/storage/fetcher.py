"""Interface of a class that reads tiered segments and their indexes (extension point of KIP-1254)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from math import inf

from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Misplacement:
    """Explanation of a missing object: the settings lead to a bucket, folder or key prefix without the segment's topic.

    `actual_place` is the full name of the segment's log elsewhere in the storage; empty if the log was not found.
    `advice` says which settings to change.
    """

    actual_place: str
    advice: str

    def __str__(self) -> str:
        if self.actual_place:
            return f"it is at {self.actual_place}: {self.advice}"
        return f"nothing of its topic is where the settings say: {self.advice}"


class IndexType(Enum):
    """Type of an index that is uploaded with a segment (Kafka: `RemoteStorageManager.IndexType`)."""

    OFFSET = "OFFSET"
    TIMESTAMP = "TIMESTAMP"
    PRODUCER_SNAPSHOT = "PRODUCER_SNAPSHOT"
    TRANSACTION = "TRANSACTION"
    LEADER_EPOCH = "LEADER_EPOCH"


SNAPSHOTS = frozenset((IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH))
"""Types of indexes that describe the broker's state at the segment's end, and not the segment's records."""


class RemoteStorageFetcher(ABC):
    """Reader of segments and indexes in remote storage (KIP-1254 `RemoteStorageFetcher`, KAFKA-15805 `fetchIndexes`).

    Many threads may use one fetcher. Its methods raise only `tiered_stream.errors.StorageError`, `CorruptDataError` and
    `UnsupportedDataError`, with messages that name the object.
    """

    find_misplacement: Callable[[RemoteLogSegment], Misplacement | None] = staticmethod(lambda segment: None)
    """Function that finds out which wrong settings explain a missing object of the segment; it may list the storage.

    The function returns None if no setting is known to be wrong.
    """

    @abstractmethod
    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        """Return the log's bytes from `start` (inclusive) to `end` (exclusive; -1: the end of the segment).

        Raises:
            StorageError: the object is missing, access is refused, or the storage cannot be reached.
            CorruptDataError: the object is shorter than its metadata says, or cannot be decrypted or decompressed.
            UnsupportedDataError: the version of the storage plugin's own format is unknown.
        """

    @abstractmethod
    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        """Return the bytes of the segment's indexes of these types; a type that the segment does not have is left out.

        As few requests are sent as the layout allows. The errors are the same as for `fetch_log_segment`.
        """

    def request_ranges(
        self, segment: RemoteLogSegment, byte_range: ByteRange, request_bytes: int
    ) -> Sequence[ByteRange]:
        """Cut `byte_range` into consecutive ranges for one GET each, of about `request_bytes` to twice that size.

        If a layout's objects consist of chunks, the ranges are cut at chunk ends.
        """
        return cut(byte_range, request_bytes)

    def segment_metadata(self, segment: RemoteLogSegment) -> RemoteLogSegment | None:
        """Return the segment's metadata from the storage itself, such as a manifest; None if the storage has none.

        Args:
            segment: segment of which only topic, partition, ids and base offset need to be right.
        """
        return None

    def signed_location(self, segment: RemoteLogSegment, seconds: int) -> str | None:
        """Return a signed URL with which anyone can GET ranges of the log for `seconds` seconds (KIP-1248).

        The URL ends earlier if the credentials that have signed it end earlier (`signing_seconds_left`). The result is
        None if the storage cannot sign URLs, or if its object has the log in compressed or encrypted form.
        """
        return None

    def signing_seconds_left(self) -> float:
        """Return the seconds until the credentials that sign URLs end; infinity if they never end a signed URL."""
        return inf

    def slow_down_responses(self) -> int:
        """Return how often the storage has asked for fewer requests so far (S3: 503 SlowDown).

        Read-ahead then sends fewer requests at once.
        """
        return 0

    def describe(self, segment: RemoteLogSegment) -> str:
        """Return the name of the object that holds the segment's log, for messages, without a credential."""
        return str(segment)

    def placed_by_metadata(self, segment: RemoteLogSegment) -> bool:
        """Return whether the segment's metadata, and not the settings, determines the keys of its objects."""
        return False

    def close(self) -> None:  # noqa: B027 - a fetcher without connections has nothing to close
        """Close connections and end threads. Python also calls this when no reference to the fetcher is left."""

    def __del__(self) -> None:
        with suppress(Exception):  # raised by a subclass's `close` if its `__init__` failed
            self.close()


class StoreFetcher(RemoteStorageFetcher):
    """Fetcher that reads objects of an object store; subclasses know the layout of the objects."""

    def __init__(self, store: ObjectStore, limits: Limits = DEFAULT_LIMITS) -> None:
        self.store = store
        self.limits = limits

    @abstractmethod
    def key(self, segment: RemoteLogSegment, suffix: str) -> str:
        """Return the key of the segment's object with `suffix`, such as `.log`."""

    def signed_location(self, segment: RemoteLogSegment, seconds: int) -> str | None:
        return self.store.signed_url(self.key(segment, ".log"), seconds)

    def signing_seconds_left(self) -> float:
        return self.store.signing_seconds_left()

    def slow_down_responses(self) -> int:
        return self.store.slow_down_responses()

    def describe(self, segment: RemoteLogSegment) -> str:
        return self.store.describe(self.key(segment, ".log"))


def cut(byte_range: ByteRange, request_bytes: int, chunk_size: int = 1) -> list[ByteRange]:
    """Cut `byte_range` at multiples of `chunk_size` into consecutive ranges of at least `request_bytes`.

    The ranges are as small as these two conditions allow. A remainder of fewer than `request_bytes` is part of the last
    range. If `byte_range` does not begin at a multiple of `chunk_size`, the first range may be shorter by less than one
    chunk.
    """
    step = -(-request_bytes // chunk_size) * chunk_size
    first = byte_range.start // chunk_size * chunk_size + step
    bounds = [byte_range.start, *range(first, byte_range.end - request_bytes + 1, step), byte_range.end]
    return [ByteRange(start, end) for start, end in pairwise(bounds) if start < end]
