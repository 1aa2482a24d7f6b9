"""State of segments and topics that results from records of `__remote_log_metadata` (Kafka: `RemoteLogMetadataCache`).

If a record cannot be read, the segments of the partition that it names count as unknown. If the record names no
partition, the segments of all topics whose ids it holds count as unknown. If it holds no id, it is skipped, because no
topic can be identified. A skipped record loses no data: a segment that is not known to be finished is read from the
brokers. A segment whose deletion was skipped is also read from the brokers, because it is missing in the storage.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from uuid import UUID

from tiered_stream.errors import CorruptDataError, TieredStreamError, UnsupportedDataError
from tiered_stream.locate.metadata_topic.metadata_snapshots import OffsetValue
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    PartitionDelete,
    RemoteLogMetadata,
    RemoteLogSegmentState,
    SegmentMetadata,
    SegmentMetadataUpdate,
    TopicIdPartition,
    decode_remote_log_metadata,
    encode_remote_log_metadata,
    partition_of,
    topic_id_of,
)
from tiered_stream.model import RemoteLogSegment, TopicPartition

TrackedSegment = tuple[RemoteLogSegment, RemoteLogSegmentState]
"""Segment that may have objects in the storage, and the state of its copy."""
_SUMMARY_OFFSET = 0
"""Offset of readable records in a summary; nothing depends on it, because only errors name offsets."""


@dataclass(frozen=True, slots=True)
class LoneUpdate:
    """Segment of which only an update is known, which says that the segment's copy is finished.

    `end_before` is the end offset (inclusive) of the known segment before this segment; None: no segment before it is
    known. Brokers copy segments without gaps, so this segment begins after `end_before`.
    """

    update: SegmentMetadataUpdate
    end_before: int | None


@dataclass(slots=True)
class _PartitionState:
    finished: dict[UUID, RemoteLogSegment] = field(default_factory=dict)
    """Segments whose copy is finished, and whose deletion has not begun, by segment id."""
    unreadable: dict[UUID, TrackedSegment] = field(default_factory=dict)
    """Segments that are being copied or deleted, with the states of their copies, by segment id."""
    alone: dict[UUID, SegmentMetadataUpdate] = field(default_factory=dict)
    """Updates that say that a segment's copy is finished, by segment id. Nothing more is known of these segments."""
    deleted: bool = False


class SegmentTable:
    """Table of segments and their states, for every partition that the applied metadata records name.

    A segment whose deletion has started never becomes readable again, and is removed when its deletion is finished. An
    update of an unknown segment is kept only if it says that the copy is finished. Compaction (KIP-1266) or retention
    may have removed the record of the copy's start. So memory is bounded by the segments that exist.

    Thread-safe: a segment that moves from one state to another is in one of them for every reader.
    """

    def __init__(self) -> None:
        self._partitions: dict[TopicIdPartition, _PartitionState] = {}
        self._lock = Lock()

    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """Return the partitions that records have named."""
        with self._lock:
            return tuple(self._partitions)

    def apply(self, metadata: RemoteLogMetadata) -> None:
        """Apply one record; records must come in the order of the metadata partition."""
        with self._lock:
            self._apply(metadata)

    def _apply(self, metadata: RemoteLogMetadata) -> None:
        state = self._partitions.get(metadata.partition)
        if state is None:
            state = self._partitions[metadata.partition] = _PartitionState()
        if state.deleted:
            return
        if isinstance(metadata, PartitionDelete):
            self._partitions[metadata.partition] = _PartitionState(deleted=True)
        elif isinstance(metadata, SegmentMetadata):
            _move(state, metadata.segment, metadata.state)
        else:
            _update(state, metadata)

    def summary(self) -> tuple[RemoteLogMetadata, ...]:
        """Return the smallest set of records that results in this table."""
        with self._lock:
            return tuple(self._records())

    def _records(self) -> Iterator[RemoteLogMetadata]:
        for partition, state in self._partitions.items():
            if state.deleted:
                yield PartitionDelete(partition)
            for segment, at in _tracked(state):
                yield SegmentMetadata(partition, segment, at)
            yield from state.alone.values()

    def segments(self, partition: TopicIdPartition) -> tuple[RemoteLogSegment, ...]:
        """Return the partition's segments whose copy is finished and whose deletion has not begun, in no order."""
        with self._lock:
            state = self._partitions.get(partition)
            return tuple(state.finished.values()) if state else ()

    def lone_updates(self, partition: TopicIdPartition) -> tuple[LoneUpdate, ...]:
        """Return the partition's segments with only an update, sorted by end offset; unknown end offsets come first."""
        with self._lock:
            state = self._partitions.get(partition)
            updates = tuple(state.alone.values()) if state else ()
            known = _tracked(state) if state and updates else ()
        ends = [update.end_offset for update in updates if update.end_offset is not None]
        ends = sorted({*(segment.end_offset for segment, _ in known), *ends})
        finished = (LoneUpdate(update, _end_before(update, ends)) for update in updates)
        return tuple(sorted(finished, key=lambda alone: (alone.update.end_offset or -1, alone.update.segment_id)))

    def tracked(self, partition: TopicIdPartition) -> tuple[TrackedSegment, ...]:
        """Return all segments of the partition that may have objects in the storage, with their states, in no order."""
        with self._lock:
            state = self._partitions.get(partition)
            return _tracked(state) if state else ()


def _tracked(state: _PartitionState) -> tuple[TrackedSegment, ...]:
    at = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return *((segment, at) for segment in state.finished.values()), *state.unreadable.values()


def _end_before(update: SegmentMetadataUpdate, ends: Sequence[int]) -> int | None:
    """Return the largest of the ascending `ends` that is below the end offset of `update`.

    Return None if no end is below it, or `update` does not have the end offset.
    """
    at = 0 if update.end_offset is None else bisect_left(ends, update.end_offset)
    return ends[at - 1] if at else None


def _update(state: _PartitionState, update: SegmentMetadataUpdate) -> None:
    """Apply `update` to `state`; a segment whose deletion has started does not become readable again.

    If the segment is unknown, only an update that says that the copy is finished is kept.
    """
    segment, at = state.unreadable.get(update.segment_id, (state.finished.get(update.segment_id), None))
    if segment is not None and at is not RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
        if segment.custom_metadata != update.custom_metadata:  # mostly both are None, and a copy takes memory and time
            segment = replace(segment, custom_metadata=update.custom_metadata)
        _move(state, segment, update.state)
    elif update.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        if update.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            state.unreadable.pop(update.segment_id, None)
        state.alone.pop(update.segment_id, None)
    elif segment is None:
        state.alone[update.segment_id] = update


def _move(state: _PartitionState, segment: RemoteLogSegment, target: RemoteLogSegmentState) -> None:
    """Set the state of the copy of `segment` to `target`.

    A record that the copy has started does not change a finished copy. If the copy's start is recorded after a lone
    update of the segment, the segment gets the state and custom metadata of that update.
    """
    segment_id = segment.segment_id
    alone = state.alone.pop(segment_id, None)
    if target is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        if alone is not None:
            segment, target = replace(segment, custom_metadata=alone.custom_metadata), alone.state
        elif segment_id in state.finished:
            return
    state.finished.pop(segment_id, None)
    state.unreadable.pop(segment_id, None)
    if target is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        state.finished[segment_id] = segment
    elif target is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
        state.unreadable[segment_id] = segment, target


@dataclass(slots=True)
class TopicState:
    """State of one topic: the `table` of its segments, and the records that could not be read.

    The state includes all records of the metadata partition below the offset `position`.
    """

    position: int
    table: SegmentTable = field(default_factory=SegmentTable)
    _unreadable: dict[TopicIdPartition | None, tuple[int, bytes, TieredStreamError]] = field(default_factory=dict)
    """Offset, value and error of the first unreadable record, by partition (None: records that name no partition)."""

    def fault_of(self, partition: TopicIdPartition) -> TieredStreamError | None:
        """Return the error because of which the partition's segments are unknown; None: the segments are known."""
        unreadable = self._unreadable.get(partition) or self._unreadable.get(None)
        return unreadable[2] if unreadable else None

    def summary(self) -> Iterator[OffsetValue]:
        """Yield (offset, value) of as few records as possible that together result in this state."""
        yield from ((_SUMMARY_OFFSET, encode_remote_log_metadata(metadata)) for metadata in self.table.summary())
        yield from ((offset, value) for offset, value, _ in self._unreadable.values())

    def add_unreadable(
        self, partition: TopicIdPartition | None, offset: int, value: bytes, error: TieredStreamError
    ) -> None:
        """Add a record that cannot be read because of `error`; only the first such record of each partition is kept.

        `partition` is the partition that the record names; None: the record names no partition.
        """
        self._unreadable.setdefault(partition, (offset, value, error))


def apply_record(topics: Mapping[bytes, TopicState], log_partition: TopicPartition, offset: int, value: bytes) -> None:
    """Apply one record to the state of the topic that it names, unless the state already includes the record's offset.

    A record that cannot be decoded is added as unreadable to the states of the topics that it may concern.

    Args:
        topics: the topics' states, by the bytes of the topic ids; changed in place.
        log_partition: partition of the metadata topic that has the record.
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
                topics[topic_id].add_unreadable(partition, offset, value, fault)
    else:
        if metadata is not None and metadata.partition.topic_id.bytes in named:
            topics[metadata.partition.topic_id.bytes].table.apply(metadata)


def _named(topics: Mapping[bytes, TopicState], value: bytes) -> list[bytes]:
    """Return the ids of `topics` that a record may concern; the result may be empty.

    A readable record concerns the topic whose id it names. A malformed record may concern every topic whose id's bytes
    are in it.
    """
    topic_id = topic_id_of(value)
    if topic_id is None:
        return [topic_id for topic_id in topics if topic_id in value]
    return [topic_id] if topic_id in topics else []


def restored_topic(
    values: Iterator[OffsetValue], topic_id: bytes, log_partition: TopicPartition, position: int
) -> TopicState:
    """Return the state of the topic `topic_id` that results from the records of a snapshot.

    Args:
        values: offset and value of each record of the snapshot (`TopicState.summary`).
        log_partition: partition of the metadata topic that had the records.
        position: offset in `log_partition` up to which (exclusive) the snapshot includes all records.

    Raises:
        CorruptDataError: the snapshot is malformed.
    """
    topics = {topic_id: TopicState(0)}
    for offset, value in values:
        apply_record(topics, log_partition, offset, value)
    topics[topic_id].position = position
    return topics[topic_id]
