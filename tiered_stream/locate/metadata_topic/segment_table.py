"""State of segments and topics that results from records of `__remote_log_metadata` (Kafka: `RemoteLogMetadataCache`).

If a record cannot be read, the segments of the partition that the record names count as unknown. If the record names no
partition, the segments of all topics whose ids are in it count as unknown. A record without the id of a known topic is
skipped. A skipped record loses no data: a segment that is not known to be finished is read from the brokers. A segment
whose deletion was skipped is also read from the brokers, because it is missing in the storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import numpy.typing as npt

from tiered_stream.errors import CorruptDataError, TieredStreamError, UnsupportedDataError
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    NO_OFFSET,
    PartitionDelete,
    RemoteLogMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    decode_remote_log_metadata,
    encoded_partition,
    partition_of,
    read_partition,
    topic_id_of,
)
from tiered_stream.locate.segment_columns import SEGMENT, Segments, data_sizes, interleaved
from tiered_stream.model import RemoteLogSegment, TopicPartition
from tiered_stream.records import flexible_versions as flexible

if TYPE_CHECKING:
    from tiered_stream.records.value_scan import UsualRecords

TrackedSegment = tuple[RemoteLogSegment, RemoteLogSegmentState]
"""Pair of a segment that may have objects in the storage, and the state of the segment's copy."""

_FINISHED, _GONE = RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_UPDATE = len(RemoteLogSegmentState)
"""Number that is added to the `state` field of an update's row, because an update lacks some fields of a segment."""
_ALONE = _UPDATE + _FINISHED
_NEXT = np.array([
    # Row of a segment in the states 0 to 3, or of an update to them.
    (0, 1, 2, 3, 0, 1, 2, 3),  # the copy has started
    (1, 1, 2, 3, 1, 1, 2, 3),  # the copy is finished
    (0, 1, 2, 3, 2, 2, 2, 3),  # the deletion has started: no update makes the segment readable again
    (0, 1, 2, 3, 3, _ALONE, 3, 3),  # the segment is not known
    (0, 1, 2, 3, 3, _ALONE, 3, 3),
    (1, 1, 2, 3, 3, _ALONE, 3, 3),  # only an update is known, which says that the copy is finished
], np.int16)  # fmt: skip
"""State of a segment after a row is applied, by the segment's state before (row of this table) and the row's state."""
_FIELDS, _CUSTOM = 1, 2
_TAKEN = np.array([
    (3, 3, 3, 3, 2, 2, 2, 2),
    (0, 3, 3, 3, 0, 2, 2, 2),
    (3, 3, 3, 3, 0, 0, 0, 0),
    (3, 3, 3, 3, 3, 3, 3, 3),
    (3, 3, 3, 3, 3, 3, 3, 3),
    (1, 3, 3, 3, 3, 3, 3, 3),
], np.int16)  # fmt: skip
"""Parts that a segment takes from an applied row, by the segment's state before and the row's state.

A value is the sum of `_CUSTOM` (the custom metadata) and `_FIELDS` (all other fields). With 0, the segment takes only
the new state.
"""
_MIN_SETTLED = 1 << 16
"""Minimum number of waiting rows at which the rows are applied, even if no caller has asked for the segments."""
_OFFSET = Struct(">q")


@dataclass(frozen=True)
class _KnownSegments:
    """Segments of one partition, with their states. The object never changes.

    A row in the state `_ALONE` is a segment of which only an update is known. If a reader gets the same object again,
    the segments have not changed.
    """

    segments: Segments

    def with_rows(self, rows: Segments) -> _KnownSegments:
        return _KnownSegments(replace(self.segments, rows=rows.rows, data=rows.data))

    def among(self, index: npt.NDArray[np.bool_]) -> Segments:
        return self.segments if index.all() else self.segments.taken(index)

    @cached_property
    def finished(self) -> Segments:
        """Segments whose copy is finished, and whose deletion has not begun."""
        return self.among(self.segments.rows["state"] == _FINISHED)

    @cached_property
    def alone(self) -> tuple[RemoteLogSegment, ...]:
        """Segments of which only an update is known (`SegmentTable.lone_updates`)."""
        rows = self.segments.rows
        if not (rows["state"] == _ALONE).any():
            return ()
        alone = self.segments.taken(rows["state"] == _ALONE)
        ends = np.unique(rows["end"][rows["end"] >= 0])
        alone.rows["base"] = np.append(-2, ends)[np.searchsorted(ends, alone.rows["end"])] + 1
        return tuple(sorted(alone, key=lambda segment: (segment.end_offset, segment.segment_id)))


class SegmentTable:
    """Table of segments and their states, for every partition that the applied metadata records name. Thread-safe.

    A segment whose deletion has started never becomes readable again, and is removed when its deletion is finished. An
    update of an unknown segment is kept only if it says that the copy is finished. Compaction (KIP-1266) or retention
    may have removed the record of the copy's start. So memory is bounded by the segments that exist.

    The table is for the topics whose records are in one partition of `__remote_log_metadata`. Records become rows,
    which wait until a caller asks for the segments, and are then applied together.
    """

    def __init__(self) -> None:
        self._slots: dict[UUID, dict[TopicIdPartition, int]] = {}
        """By topic id and partition, the slot of the partition: its index in `_known`."""
        self._known: list[_KnownSegments] = []
        self._deleted: set[int] = set()
        self._single: list[tuple[RemoteLogSegment, tuple[int, int]]] = []
        """Segments in the newest records that are not applied yet, each with its slot and state, in record order."""
        self._waiting: list[Segments] = []
        self._count, self._limit = 0, _MIN_SETTLED
        """Number of waiting rows, and the number at which they are applied even if no caller asks for the segments."""
        self._lock = Lock()

    def apply(self, metadata: RemoteLogMetadata) -> None:
        """Apply one record; calls must follow the order of the records in the partition of the metadata topic."""
        with self._lock:
            slot = self._slot(metadata.partition)
            if isinstance(metadata, PartitionDelete):
                self._deleted.add(slot)
                self._known[slot] = self._known[slot].with_rows(Segments())
            else:
                self._single.append((metadata.segment, (slot, metadata.state + _UPDATE * metadata.is_update)))
            self._wait(1)

    def apply_rows(self, rows: Segments, partitions: Sequence[TopicIdPartition]) -> None:
        """Apply `rows` that were made from records, in the order of the records in the partition of the metadata topic.

        The field `slot` of each row is an index in `partitions`, and is changed in place.
        """
        with self._lock:
            slots = np.array([self._slot(partition) for partition in partitions], np.int32)
            rows.rows["slot"] = slots[rows.rows["slot"]]
            self._flush()
            self._waiting.append(rows)
            self._wait(len(rows))

    def segments(self, partition: TopicIdPartition) -> Segments:
        """Return the partition's segments whose copy is finished and whose deletion has not begun, in no order.

        The result is the same object until a record of the partition is applied.
        """
        return self._known_of(partition).finished

    def lone_updates(self, partition: TopicIdPartition) -> tuple[RemoteLogSegment, ...]:
        """Return the segments of which only an update is known, which says that the segment's copy is finished.

        A returned segment has the ids, the custom metadata and the end offset of its update (-1: the update has no end
        offset). Brokers copy segments without gaps. So the base offset is the offset after the known segment before it
        (-1: no segment before it is known). The result is sorted by end offset.
        """
        return self._known_of(partition).alone

    def tracked(self, partition: TopicIdPartition) -> tuple[TrackedSegment, ...]:
        """Return all segments of the partition that may have objects in the storage, with their states, in no order."""
        known = self._known_of(partition)
        whole = known.segments.rows["state"] < _ALONE
        states = known.segments.rows["state"][whole].tolist()
        return tuple(zip(known.among(whole), map(RemoteLogSegmentState, states), strict=True))

    def _known_of(self, partition: TopicIdPartition) -> _KnownSegments:
        with self._lock:
            self._settle()
            slot = self._slots.get(partition.topic_id, {}).get(partition)
            return _KnownSegments(Segments()) if slot is None else self._known[slot]

    def _slot(self, partition: TopicIdPartition) -> int:
        slot = self._slots.setdefault(partition.topic_id, {}).setdefault(partition, len(self._known))
        if slot == len(self._known):
            named = Segments(topic_partition=partition.topic_partition, topic_id=partition.topic_id)
            self._known.append(_KnownSegments(named))
        return slot

    def _flush(self) -> None:
        if self._single:
            self._waiting.append(Segments.of(*zip(*self._single, strict=True)))
            self._single.clear()

    def _wait(self, count: int) -> None:
        self._count += count
        if self._count >= self._limit:
            self._settle()

    def _settle(self) -> None:
        """Apply the rows that wait."""
        if not self._count:
            return
        self._flush()
        rows = Segments.joined(self._waiting)
        self._waiting.clear()
        self._count = 0
        if self._deleted:
            rows = rows.taken(~np.isin(rows.rows["slot"], list(self._deleted)))
        slots = np.unique(rows.rows["slot"]).tolist()
        known = Segments.joined([self._known[slot].segments for slot in slots])
        # Few rows of a large partition change, and only these are sorted.
        touched = np.isin(known.rows["low"], rows.rows["low"])
        changed = _applied(Segments.joined([known.taken(touched), rows]))
        settled = Segments.joined([known.taken(~touched), changed])
        settled = settled.taken(np.argsort(settled.rows["slot"], kind="stable"))
        bounds = np.searchsorted(settled.rows["slot"], [*slots, len(self._known)]).tolist()
        for slot, start, end in zip(slots, bounds, bounds[1:], strict=False):
            self._known[slot] = self._known[slot].with_rows(settled.taken(slice(start, end)))
        self._limit = max(_MIN_SETTLED, sum(len(known.segments) for known in self._known))

    def packed(self, topic_id: UUID) -> bytes:
        """Return the segments of a topic, with their states, as bytes for `unpack`."""
        with self._lock:
            self._settle()
            slots = self._slots.get(topic_id, {})
            partitions = [encoded_partition(each) + bytes((slot in self._deleted,)) for each, slot in slots.items()]
            rows = Segments.joined([self._known[slot].segments for slot in slots.values()])
        numbers = np.zeros(len(self._known), np.int32)
        numbers[list(slots.values())] = np.arange(len(slots))
        rows.rows["slot"] = numbers[rows.rows["slot"]]
        pieces = (flexible.compact_bytes(array.tobytes()) for array in (rows.rows, rows.data))
        return b"".join((flexible.compact_array(partitions), *pieces))

    def unpack(self, reader: flexible.Reader, topic_id: bytes) -> None:
        """Add the segments of the topic `topic_id` from bytes that `packed` has returned.

        The table must not have segments of the topic yet. `topic_id` has the 16 bytes of the topic's id.

        Raises:
            CorruptDataError: the bytes are malformed; the table is not changed.
        """
        try:
            partitions = reader.array(1, lambda reader: (read_partition(reader), any(reader.take(1))))
            rows, data = reader.compact_bytes() or b"", reader.compact_bytes() or b""
            segments = Segments(np.frombuffer(rows, SEGMENT).copy(), np.frombuffer(data, np.uint8))
        except ValueError as error:
            raise CorruptDataError(f"a table of segments is malformed ({error})") from error
        if reader.position != len(reader.data) or any(each.topic_id.bytes != topic_id for each, _ in partitions):
            raise CorruptDataError("a table of segments has more bytes, or names another topic")
        _check(segments, len(partitions))
        self.apply_rows(segments, [partition for partition, _ in partitions])
        for partition, deleted in partitions:
            if deleted:
                self.apply(PartitionDelete(partition))


def _applied(rows: Segments) -> Segments:
    """Return one row for each segment: the result of all rows of the segment, applied in their order.

    Segments whose deletion is finished are left out.
    """
    keys = [rows.rows[name] for name in ("low", "high", "slot")]
    order = np.lexsort(keys)
    ordered = rows.rows[order]
    begins = np.ones(len(ordered), bool)
    begins[1:] = np.logical_or.reduce([key[order[1:]] != key[order[:-1]] for key in keys])
    first = np.flatnonzero(begins)
    counts = np.diff(first, append=len(ordered))
    current = ordered[first]
    current["state"] = _NEXT[_GONE, current["state"]]
    rank, left = 1, np.flatnonzero(counts > 1)
    while len(left):
        applied, before = ordered[first[left] + rank], current[left]
        taken = _TAKEN[before["state"], applied["state"]]
        after = np.where(taken & _FIELDS, applied, before)
        for name in ("custom_at", "custom"):
            after[name] = np.where(taken & _CUSTOM, applied[name], before[name])
        after["state"] = _NEXT[before["state"], applied["state"]]
        current[left] = after
        rank += 1
        left = left[counts[left] > rank]
    return Segments(current, rows.data).taken(current["state"] != _GONE)


@dataclass(slots=True)
class TopicState:
    """State of one topic: the `table` with its segments, and the records that could not be read.

    The state includes all records below the offset `position` in one partition of `__remote_log_metadata`. All topics
    of this partition share a table. `name` is the topic's name. If a record has the topic's id but another name, plain
    Python reads the record instead of the compiled scan.
    """

    position: int
    name: str = ""
    table: SegmentTable = field(default_factory=SegmentTable)
    unreadable: dict[TopicIdPartition | None, tuple[int, bytes, TieredStreamError]] = field(default_factory=dict)
    """Offset, value and error of the first unreadable record, by partition (None: records that name no partition)."""

    def fault_of(self, partition: TopicIdPartition) -> TieredStreamError | None:
        """Return the error because of which the partition's segments are unknown; None: the segments are known.

        It is the error of the first metadata record that may concern the partition and could not be read.
        """
        unreadable = self.unreadable.get(partition) or self.unreadable.get(None)
        return unreadable[2] if unreadable else None

    def packed(self, topic_id: bytes) -> bytes:
        """Return this state as bytes for `restore_topic`. `topic_id` has the 16 bytes of the topic's id."""
        unreadable = [
            _OFFSET.pack(offset) + flexible.compact_bytes(value) for offset, value, _ in self.unreadable.values()
        ]
        return flexible.compact_array(unreadable) + self.table.packed(UUID(bytes=topic_id))


def apply_record(topics: Mapping[bytes, TopicState], log_partition: TopicPartition, offset: int, value: bytes) -> None:
    """Apply one record to the state of the topic that it names, unless the state already includes the record's offset.

    A record that cannot be decoded is added as unreadable to the states of the topics that it may concern.

    Args:
        topics: the topics' states, by the 16 bytes of the topic ids; changed in place.
        log_partition: partition of the metadata topic that has the record.
        value: the record's value.
    """
    named = [topic_id for topic_id in _named(topics, value) if offset >= topics[topic_id].position]
    if not named:
        return
    try:
        metadata = decode_remote_log_metadata(value)
    except (CorruptDataError, UnsupportedDataError) as error:
        partition, fault = partition_of(value), type(error)(f"{log_partition} at offset {offset}: {error}")
        for topic_id in named:
            if partition is None or partition.topic_id.bytes == topic_id:
                topics[topic_id].unreadable.setdefault(partition, (offset, value, fault))
    else:
        if metadata is not None and metadata.partition.topic_id.bytes in named:
            topics[metadata.partition.topic_id.bytes].table.apply(metadata)


def _named(topics: Mapping[bytes, TopicState], value: bytes) -> list[bytes]:
    """Return the ids of the topics in `topics` that the record with this `value` may concern; may be empty.

    A readable record concerns the topic whose id it names. A malformed record may concern every topic whose id is
    somewhere in its bytes.
    """
    topic_id = topic_id_of(value)
    if topic_id is None:
        return [topic_id for topic_id in topics if topic_id in value]
    return [topic_id] if topic_id in topics else []


def apply_rows(topics: Mapping[bytes, TopicState], records: UsualRecords, start: int, end: int) -> None:
    """Apply the records with offsets from `start` to `end` (exclusive) to the states of the topics that they name.

    Records that a topic's state already includes are skipped.

    Args:
        topics: the topics' states, by the 16 bytes of the topic ids; all topics share a table, which is changed.
        records: records that the compiled scan has read.
    """
    states = [topics[topic_id] for topic_id in records.topic_ids]
    first = np.array([max(start, topic.position) for topic in states], np.int64)
    which = np.flatnonzero((records.offsets >= first[records.topics]) & (records.offsets < end))
    rows = np.empty(len(which), SEGMENT)
    for name, values in zip(SEGMENT.names or (), records.fields[which].T, strict=True):
        rows[name] = values
    named, rows["slot"] = np.unique(records.topics[which] << 32 | rows["slot"], return_inverse=True)
    partitions = [
        TopicIdPartition(UUID(bytes=records.topic_ids[topic]), TopicPartition(states[topic].name, number))
        for topic, number in zip((named >> 32).tolist(), (named & 0xFFFFFFFF).tolist(), strict=True)
    ]
    states[0].table.apply_rows(Segments(rows, records.data).taken(slice(None)), partitions)


def restore_topic(
    data: bytes, topic_id: bytes, state: TopicState, log_partition: TopicPartition, position: int
) -> None:
    """Set the empty `state` of the topic `topic_id` to the state that `TopicState.packed` has written.

    Args:
        data: the bytes that `TopicState.packed` has returned.
        log_partition: partition of the metadata topic that had the records.
        position: offset in `log_partition` up to which (exclusive) the state includes all records.

    Raises:
        CorruptDataError: the bytes are malformed; `state` is not changed.
    """
    reader = flexible.Reader(data)
    try:
        values = reader.array(_OFFSET.size, lambda reader: (reader.unpack(_OFFSET)[0], reader.compact_bytes() or b""))
        state.table.unpack(reader, topic_id)
    except ValueError as error:
        raise CorruptDataError(f"a snapshot of a topic is malformed ({error})") from error
    state.position = 0
    for offset, value in values:
        apply_record({topic_id: state}, log_partition, offset, value)
    state.position = position


def _check(segments: Segments, partitions: int) -> None:
    """Check rows that were read from a file; `partitions` is the number of partitions to which the rows may belong.

    Raises:
        CorruptDataError: a value is not possible.
    """
    rows, sizes = segments.rows, data_sizes(segments.rows)
    at = interleaved(rows["epochs_at"], rows["custom_at"])
    whole = rows["state"] < _ALONE
    if (
        not ((rows["slot"] >= 0) & (rows["slot"] < partitions) & (rows["custom"] >= -1)).all()
        or not (np.isin(rows["state"], (*range(_GONE), _ALONE)) & (rows["epochs"] >= whole)).all()
        or not (((rows["high"] | rows["low"]) != 0) & (rows["end"] >= -1) & (rows["end"] < NO_OFFSET)).all()
        or not ((rows["base"] >= 0) & (rows["base"] <= rows["end"]) & (rows["size"] >= 0))[whole].all()
        or sizes.sum() != len(segments.data)
        or not np.array_equal(at, np.cumsum(sizes) - sizes)
    ):
        raise CorruptDataError("a table of segments has impossible values")
    epochs, same = segments.epochs, np.repeat(np.arange(len(rows)), rows["epochs"])
    later = (np.diff(epochs["epoch"]) > 0) & (np.diff(epochs["start"]) >= 0)
    if (
        not later[same[1:] == same[:-1]].all()
        or min(epochs["epoch"].min(initial=0), epochs["start"].min(initial=0)) < 0
    ):
        raise CorruptDataError("leader epochs in a table of segments contradict each other")
