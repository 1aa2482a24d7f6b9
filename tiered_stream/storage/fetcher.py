"""KIP-1254's plug point: whoever can give the bytes of a tiered segment and of its indexes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from tiered_stream.model import ByteRange, RemoteLogSegment, uuid_to_text


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Why an object is missing, where the settings are wrong: their place has nothing of the topic.

    `found_at` is the segment's log elsewhere, empty where it was not found; `what_to_set` is what mends it, in words.
    """

    found_at: str
    what_to_set: str

    def __str__(self) -> str:
        where = f"it is at {self.found_at}" if self.found_at else "nothing of its topic is where the settings say"
        return f"{where}: {self.what_to_set}"


def _unknown(_segment: RemoteLogSegment) -> Misplaced | None:
    return None


class IndexType(Enum):
    """The indexes that are uploaded with a segment (Kafka: `RemoteStorageManager.IndexType`)."""

    OFFSET = "OFFSET"
    TIMESTAMP = "TIMESTAMP"
    PRODUCER_SNAPSHOT = "PRODUCER_SNAPSHOT"
    TRANSACTION = "TRANSACTION"
    LEADER_EPOCH = "LEADER_EPOCH"


SNAPSHOTS = frozenset((IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH))
"""Those that tell of the broker at the segment's end, and not of the segment."""


class RemoteStorageFetcher(ABC):
    """Reads segments and indexes from remote storage (KIP-1254 `RemoteStorageFetcher`, KAFKA-15805 `fetchIndexes`).

    One fetcher serves many threads at once. Errors are of `tiered_stream.errors.StorageError`, `CorruptDataError` and
    `UnsupportedDataError` only, and name the object.
    """

    misplaced: Callable[[RemoteLogSegment], Misplaced | None] = staticmethod(_unknown)
    """Looks for a segment with a missing object; None: no setting is known to be wrong. It may list the storage."""

    @abstractmethod
    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        """The log's bytes from `start` (inclusive) to `end` (exclusive, -1: to the end of the segment).

        Raises:
            StorageError: the object is missing, refused or out of reach.
            CorruptDataError: the object is shorter than its metadata says, or its transformation fails.
            UnsupportedDataError: the storage plugin's own format is of a version that is not known.
        """

    @abstractmethod
    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        """The wanted indexes, in as few requests as the layout allows; those that do not exist are left out.

        Raises: as `fetch_log_segment`.
        """

    def request_ranges(self, segment: RemoteLogSegment, wanted: ByteRange, request_bytes: int) -> Sequence[ByteRange]:
        """`wanted` cut into consecutive ranges of about `request_bytes` to twice that, one GET each.

        A layout whose objects are made of chunks cuts at chunk ends.
        """
        return cut(wanted, request_bytes)

    def segment_metadata(self, segment: RemoteLogSegment) -> RemoteLogSegment | None:
        """What the storage itself keeps of a segment of which only topic, partition, id and base offset are known.

        None: this storage keeps nothing that tells it. Raises: as `fetch_log_segment`.
        """
        return None

    def signed_location(self, segment: RemoteLogSegment, seconds: int) -> str | None:
        """A URL with which anyone may GET ranges of the log's bytes for so many seconds (KIP-1248); it is a credential.

        None: the storage cannot sign, or the object does not hold the log as it is.

        Raises: as `fetch_log_segment`.
        """
        return None

    def busy_answers(self) -> int:
        """How often the storage has asked for fewer requests so far (S3: 503 SlowDown); read-ahead heeds it."""
        return 0

    def describe(self, segment: RemoteLogSegment) -> str:
        """The object that holds the segment's log, for messages; without a credential."""
        return (
            f"segment {uuid_to_text(segment.segment_id)} of {segment.topic_partition} from offset {segment.base_offset}"
        )

    def placed_by_metadata(self, segment: RemoteLogSegment) -> bool:
        """Whether the segment's own metadata says where its objects are, whatever the settings say."""
        return False

    def close(self) -> None:  # noqa: B027 - a fetcher without connections has nothing to close
        """Let go of connections and threads; called too when nobody has the fetcher any more."""

    def __del__(self) -> None:
        with suppress(Exception):  # a subclass's, which may not have been made to its end
            self.close()


def cut(wanted: ByteRange, request_bytes: int, chunk_size: int = 1) -> list[ByteRange]:
    """`wanted` cut at multiples of `chunk_size` into consecutive ranges of at least `request_bytes`.

    They are as small as that allows, but for what would be left over at the end, which the last range takes.
    """
    step = -(-request_bytes // chunk_size) * chunk_size
    first = wanted.start // chunk_size * chunk_size + step
    bounds = [wanted.start, *range(first, wanted.end - request_bytes + 1, step), wanted.end]
    return [ByteRange(start, end) for start, end in pairwise(bounds) if start < end]
