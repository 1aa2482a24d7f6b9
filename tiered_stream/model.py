"""What passes between the packages: partitions and offsets, segments and where their bytes are, what a task reads."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID

from tiered_stream.errors import TieredStreamError

K = TypeVar("K")
V = TypeVar("V")

STORAGE_FORMAT = "ApacheKafkaV1"
"""KIP-1248's name for segments as Kafka writes them."""

ASSUMED_RECORD_BYTES = 256
"""For splits that come from a broker: their size is not known beforehand."""

_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


class TopicPartition(NamedTuple):
    """One partition of one topic.

    A tuple, since it is the key of nearly all that a planner keeps: dataclasses are hashed and compared by Python code.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class _Range:
    """From `start` (inclusive) to `end` (exclusive); may be empty.

    Raises:
        ValueError: a bound is negative, or `end` lies below `start`.
    """

    start: int
    end: int
    _KIND: ClassVar[str]

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not {self._KIND} range: start {self.start}, end {self.end}")

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class OffsetRange(_Range):
    """Offsets of one partition; bounds and errors as `_Range`."""

    _KIND = "an offset"

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def intersect(self, other: OffsetRange) -> OffsetRange:
        """The offsets in both; empty, at the larger start, when there are none."""
        if self.start <= other.start and other.end <= self.end:
            return other
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.end, other.end)))


@dataclass(frozen=True, slots=True)
class PartialAnswer(Generic[K, V]):
    """What is known, and of the rest why it is not: one sick partition costs nobody else's answer."""

    found: dict[K, V]
    faults: dict[K, TieredStreamError]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's id (all zeros where the broker is too old to have one) and its partition numbers, ascending.

    `internal`: it is the brokers' own, such as `__consumer_offsets`; the brokers say so.
    """

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...]
    internal: bool = False


PartitionOffsets = Mapping[TopicPartition, int]


PartitionRanges = Mapping[TopicPartition, OffsetRange]


def listed(partitions: Iterable[TopicPartition]) -> str:
    """The partitions by name, in order, for a message."""
    return ", ".join(str(partition) for partition in sorted(partitions))


def uuid_to_text(value: UUID) -> str:
    """The 22 characters that name topics and segments in object keys and manifests."""
    return urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Inverse of `uuid_to_text`.

    Raises:
        ValueError: `text` is not 22 characters of the URL-safe base64 alphabet.
    """
    if not _UUID_TEXT.fullmatch(text):
        raise ValueError(f"not a Kafka UUID: {text[:40]!r}; it has 22 characters of A-Z, a-z, 0-9, '-' and '_'")
    return UUID(bytes=urlsafe_b64decode(text + "=="))


@dataclass(frozen=True, slots=True, order=True)
class AbortedTransaction:
    """Producer `producer_id`'s transactional records from `first_offset` to `last_offset` (its marker) are void."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ByteRange(_Range):
    """Bytes of one object; bounds and errors as `_Range`."""

    _KIND = "a byte"


@dataclass(frozen=True, slots=True)
class LeaderEpoch:
    """A leader epoch and the first offset that was written in it (Kafka: `EpochEntry`)."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegment:
    """One segment in remote storage (KIP-405: `RemoteLogSegmentMetadata`), its copy finished.

    `end_offset` is the last offset in the segment, inclusive, as in Kafka. `size` is the bytes of the log as the
    broker wrote it, before any compression or encryption by the storage plugin. `max_timestamp` is in milliseconds,
    -1 when unknown. `custom_metadata` is the storage plugin's own, opaque here.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    segment_id: UUID
    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int = -1
    leader_epochs: tuple[LeaderEpoch, ...] = ()
    transaction_index_empty: bool = False
    custom_metadata: bytes | None = None

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.base_offset, self.end_offset + 1)

    def __str__(self) -> str:
        return f"segment {uuid_to_text(self.segment_id)} of {self.topic_partition} from offset {self.base_offset}"


@dataclass(frozen=True, slots=True)
class SegmentLocation:
    """The part of a segment that holds `offsets`: a batch belongs to it when it begins in `bytes`.

    `aborted_transactions` are those that touch `offsets`, needed under read_committed only. `signed_url` is a
    credential: it stays out of every repr. `storage_format` is KIP-1248's name of what the object holds. The offset
    after the last batch that begins in `bytes` lies from `following[0]` to `following[1]`, unless that is unknown.
    """

    segment: RemoteLogSegment
    offsets: OffsetRange
    bytes: ByteRange
    aborted_transactions: tuple[AbortedTransaction, ...] = ()
    signed_url: str | None = field(default=None, repr=False)
    storage_format: str = STORAGE_FORMAT
    following: tuple[int, int] | None = None


PartitionLocations = dict[TopicPartition, tuple[SegmentLocation, ...]]


def touching(transactions: Sequence[AbortedTransaction], start: int, end: int) -> tuple[AbortedTransaction, ...]:
    """Those with an offset from `start` (inclusive) to `end` (exclusive)."""
    if not transactions:
        return ()
    return tuple(t for t in transactions if t.first_offset < end and t.last_offset >= start)


def within(locations: Sequence[SegmentLocation], offsets: OffsetRange) -> Iterator[SegmentLocation]:
    """What of the locations lies in the range."""
    for location in locations:
        common = offsets.intersect(location.offsets)
        if common is location.offsets:
            yield location
        elif len(common):
            yield replace(location, offsets=common)


def merged(before: SegmentLocation, after: SegmentLocation) -> SegmentLocation | None:
    """Two neighbours as one location, if they are parts of one segment whose bytes meet or overlap."""
    if before.segment.segment_id != after.segment.segment_id or before.offsets.end != after.offsets.start:
        return None
    if not before.bytes.start <= after.bytes.start <= before.bytes.end <= after.bytes.end:
        return None
    return replace(
        after,
        offsets=OffsetRange(before.offsets.start, after.offsets.end),
        bytes=ByteRange(before.bytes.start, after.bytes.end),
        aborted_transactions=tuple(sorted({*before.aborted_transactions, *after.aborted_transactions})),
    )


@dataclass(frozen=True, slots=True)
class Split:
    """Offsets of one partition that one task reads: from the segments that hold them all, or from the broker.

    `locations` are in offset order and together hold `offsets`; without any, the broker is asked. With a `topic_id`,
    another topic by the same name is not read. Small and picklable, without a secret.
    """

    topic_partition: TopicPartition
    offsets: OffsetRange
    locations: tuple[SegmentLocation, ...] = ()
    topic_id: UUID | None = None

    def rest(self, offset: int) -> Split | None:
        """What of it lies at or after the offset; None: nothing does."""
        if offset <= self.offsets.start:
            return self
        if offset >= self.offsets.end:
            return None
        offsets = OffsetRange(offset, self.offsets.end)
        return replace(self, offsets=offsets, locations=tuple(within(self.locations, offsets)))

    @property
    def storage_bytes(self) -> int:
        """Bytes of the log that are to come from storage."""
        return sum(len(location.bytes) for location in self.locations)
