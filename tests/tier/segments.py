"""Segments and indexes that a broker makes of a partition's record batches."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

import google_crc32c

from tiered_stream.model import (
    AbortedTransaction,
    ByteRange,
    LeaderEpoch,
    OffsetRange,
    RemoteLogSegment,
    SegmentLocation,
    TopicPartition,
)
from tiered_stream.storage.fetcher import IndexType

TOPIC_ID = UUID(int=7)
_HEADER = struct.Struct(">qiibIhiqqqhi")
_CONTROL, _ABORTS, _COORDINATOR_EPOCH = 0x20, slice(68, 70), slice(73, 77)
"""Attribute of a control batch, and where its one record has the marker's type and the coordinator's epoch."""
_TRANSACTIONAL = 0x10


class BatchHeader(NamedTuple):
    """Fields of a record batch's header, in their order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @classmethod
    def of(cls, batch: bytes) -> BatchHeader:
        return cls._make(_HEADER.unpack_from(batch))

    @property
    def size(self) -> int:
        return self.length + 12

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


class ProducerEntry(NamedTuple):
    """Entry of a producer snapshot (Kafka: `ProducerStateManager`)."""

    producer_id: int
    producer_epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = -1


@dataclass(frozen=True)
class TieredSegment:
    """Segment with its indexes; `batches` are the log's record batches."""

    segment: RemoteLogSegment
    batches: tuple[bytes, ...]
    indexes: dict[IndexType, bytes]

    @cached_property
    def log(self) -> bytes:
        return b"".join(self.batches)

    def location(
        self, first: int = 0, end: int | None = None, aborted: tuple[AbortedTransaction, ...] = ()
    ) -> SegmentLocation:
        """Return the batches from number `first` to number `end` (exclusive; None: the segment's end)."""
        starts = [*(BatchHeader.of(batch).base_offset for batch in self.batches), self.segment.end_offset + 1]
        positions = [0, *accumulate(map(len, self.batches))]
        end = len(self.batches) if end is None else end
        offsets, part = OffsetRange(starts[first], starts[end]), ByteRange(positions[first], positions[end])
        return SegmentLocation(self.segment, offsets, part, aborted_transactions=aborted)


def described(
    partition: TopicPartition, start: int, end: int, number: int, *, topic_id: UUID = TOPIC_ID, size: int = 1000,
    epochs: Iterable[tuple[int, int]] = (), **others: Any,
) -> RemoteLogSegment:  # fmt: skip
    """Describe a segment of the offsets from `start` to `end` (exclusive), of whose bytes and indexes there are none.

    All offsets are of epoch 0 unless `epochs` has epochs and their starts. `number` becomes the segment's id.
    """
    entries = tuple(LeaderEpoch(*each) for each in epochs or ((0, start),))
    return RemoteLogSegment(
        partition, topic_id, UUID(int=number), start, end - 1, size, leader_epochs=entries, **others
    )


def in_epoch(batch: bytes, leader_epoch: int) -> bytes:
    """Return the batch as the leader of this epoch writes it; the checksum does not cover the epoch."""
    return batch[:12] + leader_epoch.to_bytes(4, "big") + batch[16:]


def tiered(
    partition: TopicPartition,
    segments: Iterable[Sequence[bytes]],
    *,
    topic_id: UUID | None = None,
    segment_ids: Iterator[UUID] | None = None,
    end: int | None = None,
    index_interval: int = 4096,
    says_empty: bool = True,
    removed: Collection[int] = (),
) -> list[TieredSegment]:
    """Return the segments that consist of these batches, from the partition's first segment on.

    Args:
        segments: each segment's batches with their base offsets and leader epochs. Only headers are read, so a caller
            that writes the log itself may leave out what follows a header, but not of a marker.
        topic_id, segment_ids: ids that are made of names if they are not given.
        end: offset after the last segment, if it is higher than the offset after the last batch.
        index_interval: the topic's `index.interval.bytes`.
        says_empty: whether metadata says that a transaction index is empty; otherwise there is one without entries.
        removed: base offsets of batches that compaction removed; indexes of transactions keep what they say.
    """
    topic_id = topic_id or uuid5(NAMESPACE_OID, partition.topic)
    spans = [[(BatchHeader.of(batch), batch) for batch in batches] for batches in segments]
    ends = [following[0][0].base_offset for following in spans[1:]]
    ends += [end or spans[-1][-1][0].last_offset + 1] if spans else []
    state, found = _PartitionState(), []
    for batches, segment_end in zip(spans, ends, strict=True):
        start = batches[0][0].base_offset
        aborted = b"".join(entry for each in batches if (entry := state.append(*each)))
        left = [each for each in batches if each[0].base_offset not in removed]
        offset_index, time_index, max_timestamp = _indexes([header for header, _ in left], start, index_interval)
        segment = RemoteLogSegment(
            topic_partition=partition,
            topic_id=topic_id,
            segment_id=next(segment_ids) if segment_ids else uuid5(topic_id, f"{partition.partition} {start}"),
            base_offset=start,
            end_offset=segment_end - 1,
            size=sum(header.size for header, _ in left),
            max_timestamp=max_timestamp,
            leader_epochs=tuple(state.epochs_from(start)),
            transaction_index_empty=says_empty and not aborted,
        )
        indexes = {
            IndexType.OFFSET: offset_index,
            IndexType.TIMESTAMP: time_index,
            IndexType.PRODUCER_SNAPSHOT: state.snapshot(),
            IndexType.LEADER_EPOCH: state.checkpoint(),
            IndexType.TRANSACTION: aborted,
        }
        found.append(TieredSegment(segment, tuple(batch for _, batch in left), indexes))
    return found


def _indexes(batches: Sequence[BatchHeader], start: int, interval: int) -> tuple[bytes, bytes, int]:
    """Return offset index, time index and largest timestamp (Kafka 4: `LogSegment`'s `append` and at a roll)."""
    offsets, times, indexed = b"", b"", -1
    position = since = 0
    latest = (-1, start)
    for batch in batches:
        if batch.max_timestamp > latest[0]:
            latest = batch.max_timestamp, batch.last_offset
        if since > interval:
            offsets, since = offsets + struct.pack(">ii", batch.last_offset - start, position), 0
            if latest[0] > indexed:
                times, indexed = times + struct.pack(">qi", latest[0], latest[1] - start), latest[0]
        position, since = position + batch.size, since + batch.size
    if latest[0] > indexed:
        times += struct.pack(">qi", latest[0], latest[1] - start)
    return offsets, times, latest[0]


@dataclass
class _PartitionState:
    """State that a broker keeps of a partition across segments: producers and leader epochs."""

    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    epochs: list[LeaderEpoch] = field(default_factory=list)

    def append(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """Take in a batch; return the transaction index's entry if the batch aborts a transaction."""
        if not self.epochs or header.leader_epoch > self.epochs[-1].epoch:
            self.epochs.append(LeaderEpoch(header.leader_epoch, header.base_offset if self.epochs else 0))
        if header.producer_id < 0:
            return None
        known = self.producers.get(header.producer_id, ProducerEntry(header.producer_id))
        known = known._replace(timestamp=header.max_timestamp)
        if header.attributes & _CONTROL:
            return self._end_transaction(known, header, batch)
        opened = header.attributes & _TRANSACTIONAL and known.transaction_start < 0
        self.producers[header.producer_id] = known._replace(
            producer_epoch=header.producer_epoch,
            last_sequence=header.base_sequence + header.last_offset_delta,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            transaction_start=header.base_offset if opened else known.transaction_start,
        )
        return None

    def _end_transaction(self, known: ProducerEntry, header: BatchHeader, batch: bytes) -> bytes | None:
        first, marker = known.transaction_start, header.base_offset
        if known.producer_epoch != header.producer_epoch:
            known = ProducerEntry(header.producer_id, header.producer_epoch, timestamp=known.timestamp)
        coordinator_epoch = int.from_bytes(batch[_COORDINATOR_EPOCH], "big")
        self.producers[header.producer_id] = known._replace(coordinator_epoch=coordinator_epoch, transaction_start=-1)
        if first < 0 or int.from_bytes(batch[_ABORTS], "big"):
            return None
        undecided = [each.transaction_start for each in self.producers.values() if each.transaction_start >= 0]
        return struct.pack(">hqqqq", 0, header.producer_id, first, marker, min(undecided, default=marker + 1))

    def snapshot(self) -> bytes:
        entries = [struct.pack(">qhiqiqiq", *self.producers[each]) for each in sorted(self.producers)]
        body = struct.pack(">i", len(entries)) + b"".join(entries)
        return struct.pack(">hI", 1, google_crc32c.value(body)) + body

    def checkpoint(self) -> bytes:
        lines = [f"{entry.epoch} {entry.start_offset}" for entry in self.epochs]
        return "\n".join(["0", str(len(lines)), *lines, ""]).encode()

    def epochs_from(self, start: int) -> Iterator[LeaderEpoch]:
        """Yield the epochs of the offsets from `start` on; the first one's start is moved up to `start`."""
        for at, entry in enumerate(self.epochs):
            if at + 1 == len(self.epochs) or self.epochs[at + 1].start_offset > start:
                yield LeaderEpoch(entry.epoch, max(entry.start_offset, start))
