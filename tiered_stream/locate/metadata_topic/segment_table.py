"""State of the segments that results from the records of `__remote_log_metadata` (Kafka: `RemoteLogMetadataCache`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from uuid import UUID

from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    PartitionDelete,
    RemoteLogMetadata,
    RemoteLogSegmentState,
    SegmentMetadata,
    SegmentMetadataUpdate,
    TopicIdPartition,
)
from tiered_stream.model import RemoteLogSegment

TrackedSegment = tuple[RemoteLogSegment, RemoteLogSegmentState]
"""Segment that may have objects in the storage, and the state of its copy."""


@dataclass(frozen=True, slots=True)
class FinishedAlone:
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

    def alone(self, partition: TopicIdPartition) -> tuple[FinishedAlone, ...]:
        """Return the partition's segments with only an update, sorted by end offset; unknown end offsets come first."""
        with self._lock:
            state = self._partitions.get(partition)
            updates = tuple(state.alone.values()) if state else ()
            known = _tracked(state) if state and updates else ()
        ends = [update.end_offset for update in updates if update.end_offset is not None]
        ends = sorted({*(segment.end_offset for segment, _ in known), *ends})
        finished = (FinishedAlone(update, _end_before(update, ends)) for update in updates)
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
        _move(state, replace(segment, custom_metadata=update.custom_metadata), update.state)
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
