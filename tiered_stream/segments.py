"""What is said of a tiered log segment between the rooms: its metadata, where its bytes are, which may be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from tiered_stream.offsets import OffsetRange, TopicPartition
from tiered_stream.records.transactions import AbortedTransaction


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `start` (inclusive) to `end` (exclusive) of one object; may be empty.

    Raises:
        ValueError: a bound is negative, or `end` lies below `start`.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a byte range: start {self.start}, end {self.end}")

    def __len__(self) -> int:
        return self.end - self.start


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
    storage_format: str = "ApacheKafkaV1"
    following: tuple[int, int] | None = None
