"""Values that the packages exchange: partitions, offset ranges, segments, locations of their bytes, and splits."""

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
"""Name in KIP-1248 of the storage format in which Kafka itself writes segments."""

NO_TOPIC_ID = UUID(int=0)
"""Id of a topic whose id is unknown, or whose brokers have no topic ids (before Kafka 2.8)."""

ASSUMED_RECORD_BYTES = 256
"""Assumed size of a record in bytes, for splits that are read from a broker, which does not report sizes beforehand."""

REPORT_TOKEN_BYTES = 16
"""Size in bytes of the secret token with which each report of metrics from a task begins."""

_TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


class TopicPartition(NamedTuple):
    """One partition of one topic.

    The class is a tuple, because partitions are the keys of most dictionaries, and Python hashes and compares tuples
    faster than dataclasses.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_topic_name(text: str) -> bool:
    """Return whether Kafka allows a topic with this name (Kafka: `Topic.validate`).

    Names from brokers, from the storage and from checkpoints are checked where they come in, because they become parts
    of paths, of names of tables, and of log lines.
    """
    return _TOPIC_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Range:
    """Range from `start` (inclusive) to `end` (exclusive); it may be empty.

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
    """Range of offsets of one partition, from `start` (inclusive) to `end` (exclusive); it may be empty.

    Raises:
        ValueError: a bound is negative, or `end` lies below `start`.
    """

    _KIND = "an offset"

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def intersect(self, other: OffsetRange) -> OffsetRange:
        """Return the offsets that are in both ranges; if there are none, an empty range at the larger start."""
        if self.start <= other.start and other.end <= self.end:
            return other
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.end, other.end)))


@dataclass(frozen=True, slots=True)
class PartialAnswer(Generic[K, V]):
    """Result of an operation on several keys, such as partitions, which can fail for single keys.

    `found` has the value of each key for which the operation succeeded. `faults` has the error of each key for which it
    failed.
    """

    found: dict[K, V]
    faults: dict[K, TieredStreamError]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Description of a topic by the brokers: its name, its id, and its partition numbers in ascending order.

    The id is all zeros if the broker is too old to have topic ids. `internal` is true if the brokers report the topic
    as internal, such as `__consumer_offsets`.
    """

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...]
    internal: bool = False


PartitionOffsets = Mapping[TopicPartition, int]


PartitionRanges = Mapping[TopicPartition, OffsetRange]


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of the partitions, sorted and separated by commas, for a message."""
    return ", ".join(str(partition) for partition in sorted(partitions))


def uuid_to_text(value: UUID) -> str:
    """Return the UUID as 22 characters of URL-safe base64, as in object keys and manifests (Kafka: `Uuid`)."""
    return urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Parse a UUID that Kafka has written as 22 characters of URL-safe base64.

    Raises:
        ValueError: `text` is not 22 characters of the URL-safe base64 alphabet.
    """
    if not _UUID_TEXT.fullmatch(text):
        raise ValueError(f"not a Kafka UUID: {text[:40]!r}; it has 22 characters of A-Z, a-z, 0-9, '-' and '_'")
    return UUID(bytes=urlsafe_b64decode(text + "=="))


class AbortedTransaction(NamedTuple):
    """Aborted transaction of one producer in one partition.

    `first_offset` is the offset of the transaction's first record, and `last_offset` is the offset of its abort marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ByteRange(_Range):
    """Range of bytes of one object, from `start` (inclusive) to `end` (exclusive); it may be empty.

    Raises:
        ValueError: a bound is negative, or `end` lies below `start`.
    """

    _KIND = "a byte"


class LeaderEpoch(NamedTuple):
    """Leader epoch of a partition, and the first offset that was written in this epoch (Kafka: `EpochEntry`)."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegment:
    """One segment in remote storage whose copy is finished (KIP-405: `RemoteLogSegmentMetadata`).

    `end_offset` is the last offset in the segment, inclusive, as in Kafka. `size` is the segment's size in bytes as the
    broker wrote it, before any compression or encryption by the storage plugin. `max_timestamp` is the highest
    timestamp of a record in milliseconds since the epoch; -1: unknown. `leader_epochs` are the epochs in which the
    segment's records were written. `transaction_index_empty` is true if the segment is known to have no aborted
    transactions. `custom_metadata` are bytes that the storage plugin wrote, and that only the fetcher of this plugin's
    layout reads; None: there are no such bytes.
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
    """Part of a segment that holds `offsets`; a record batch belongs to the part if the batch begins in `bytes`.

    `aborted_transactions` are the aborted transactions that overlap `offsets`; only read_committed needs them.
    `signed_url` is a URL with a signature that grants access to the object. It is a credential, so no repr shows it.
    `storage_format` is KIP-1248's name for the format of the object. `following` has two bounds, both inclusive, for
    the first offset after the last batch that begins in `bytes`: the lowest and the highest possible value. None: no
    bounds are known.
    """

    segment: RemoteLogSegment
    offsets: OffsetRange
    bytes: ByteRange
    aborted_transactions: tuple[AbortedTransaction, ...] = ()
    signed_url: str | None = field(default=None, repr=False)
    storage_format: str = STORAGE_FORMAT
    following: tuple[int, int] | None = None

    def part(
        self, offsets: OffsetRange, bytes_of_part: ByteRange, following: tuple[int, int] | None
    ) -> SegmentLocation:
        """Return the part of this location with these offsets, bytes and `following`.

        The part keeps only the aborted transactions that overlap its offsets.
        """
        aborted = touching(self.aborted_transactions, offsets.start, offsets.end)
        return replace(self, offsets=offsets, bytes=bytes_of_part, aborted_transactions=aborted, following=following)


PartitionLocations = dict[TopicPartition, tuple[SegmentLocation, ...]]


def touching(transactions: Sequence[AbortedTransaction], start: int, end: int) -> tuple[AbortedTransaction, ...]:
    """Return the transactions that overlap the offsets from `start` (inclusive) to `end` (exclusive)."""
    if not transactions:
        return ()
    return tuple(t for t in transactions if t.first_offset < end and t.last_offset >= start)


def within(locations: Sequence[SegmentLocation], offsets: OffsetRange) -> Iterator[SegmentLocation]:
    """Yield each location with its `offsets` cut to the range; leave out locations without offsets in the range.

    The `bytes` of a location are not cut.
    """
    for location in locations:
        common = offsets.intersect(location.offsets)
        if common is location.offsets:
            yield location
        elif len(common):
            yield replace(location, offsets=common)


def merged(before: SegmentLocation, after: SegmentLocation) -> SegmentLocation | None:
    """Return one location in place of two adjacent locations, or None if they cannot be merged.

    They can be merged if both are of the same segment, the offsets of `after` start where the offsets of `before` end,
    and their byte ranges meet or overlap. The result has the signed URL, the storage format and the `following` of
    `after`.
    """
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
    """Offsets of one partition that one task reads, from the segments that hold all of them or from the broker.

    `locations` are in offset order and together hold `offsets`; empty: the broker is read. If `topic_id` is given,
    records of another topic with the same name are not read. If the broker is read although the offsets are tiered,
    `why_brokers` is the reason, by its name in the metrics; otherwise it is empty. A split is small and picklable.
    """

    topic_partition: TopicPartition
    offsets: OffsetRange
    locations: tuple[SegmentLocation, ...] = ()
    topic_id: UUID | None = None
    why_brokers: str = ""

    def rest(self, offset: int) -> Split | None:
        """Return the split without its offsets below `offset`; None if no offset is left."""
        if offset <= self.offsets.start:
            return self
        if offset >= self.offsets.end:
            return None
        offsets = OffsetRange(offset, self.offsets.end)
        return replace(self, offsets=offsets, locations=tuple(within(self.locations, offsets)))

    @property
    def storage_bytes(self) -> int:
        """Number of bytes of the log that the task reads from storage for this split; 0 if a broker is read instead."""
        return sum(len(location.bytes) for location in self.locations)


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """UDP address (`place`, as `host:port`) to which tasks send metrics, and the token with which a report must begin.

    The random token is a secret, because its holder can forge the metrics of a query.
    """

    place: str
    token: bytes = field(repr=False)

    def to_option(self) -> str:
        """Return `host:port/TOKEN`, with the token in hex, as in the option `remote.metrics.secret.addresses`."""
        return f"{self.place}/{self.token.hex()}"
