"""The state that the records of `__remote_log_metadata` add up to (Kafka: `RemoteLogMetadataCache`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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


@dataclass(slots=True)
class _PartitionState:
    copying: dict[UUID, RemoteLogSegment] = field(default_factory=dict)
    finished: dict[UUID, RemoteLogSegment] = field(default_factory=dict)
    deleted: bool = False

    def forget(self, segment_id: UUID) -> None:
        self.copying.pop(segment_id, None)
        self.finished.pop(segment_id, None)


class SegmentTable:
    """By partition, the segments that may be read. Only partitions that are `follow`ed are kept.

    A segment is forgotten when its deletion starts: it never becomes readable again, and an update of an unknown
    segment says nothing. So memory is bounded by the segments that exist.
    """

    def __init__(self) -> None:
        self._partitions: dict[TopicIdPartition, _PartitionState] = {}

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep what is said of `partitions` from now on; what was said before is unknown and must be told again."""
        for partition in partitions:
            self._partitions[partition] = _PartitionState()

    def follows(self, partition: TopicIdPartition) -> bool:
        return partition in self._partitions

    def forget(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Stop keeping `partitions`."""
        for partition in partitions:
            self._partitions.pop(partition, None)

    def followed(self) -> tuple[TopicIdPartition, ...]:
        return tuple(self._partitions)

    def apply(self, metadata: RemoteLogMetadata) -> None:
        """Take in one record, in the order of the metadata partition."""
        state = self._partitions.get(metadata.partition)
        if state is None or state.deleted:
            return
        if isinstance(metadata, PartitionDelete):
            self._partitions[metadata.partition] = _PartitionState(deleted=True)
        elif isinstance(metadata, SegmentMetadata):
            _move(state, metadata.segment, metadata.state)
        else:
            _update(state, metadata)

    def segments(self, partition: TopicIdPartition) -> tuple[RemoteLogSegment, ...]:
        """The segments whose copy is finished and whose deletion has not begun, in no order."""
        state = self._partitions.get(partition)
        return tuple(state.finished.values()) if state else ()


def _update(state: _PartitionState, update: SegmentMetadataUpdate) -> None:
    segment = state.copying.get(update.segment_id) or state.finished.get(update.segment_id)
    if segment is not None:
        _move(state, replace(segment, custom_metadata=update.custom_metadata), update.state)


def _move(state: _PartitionState, segment: RemoteLogSegment, target: RemoteLogSegmentState) -> None:
    if target is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        if segment.segment_id not in state.finished:
            state.copying[segment.segment_id] = segment
        return
    state.forget(segment.segment_id)
    if target is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        state.finished[segment.segment_id] = segment
