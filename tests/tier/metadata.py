"""Records of `__remote_log_metadata` by which a broker says what becomes of a segment or of a partition."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.locate.metadata_topic.messages import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    RemoteLogSegmentState,
    SegmentMetadata,
    TopicIdPartition,
)
from tiered_stream.model import RemoteLogSegment

STARTED, FINISHED = RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def segment_record(
    segment: RemoteLogSegment, state: int = STARTED, event_ms: int = 0, version: int = 0, **others: Any
) -> bytes:
    """Return the record with all the segment's metadata; a broker writes it in the state STARTED."""
    kind = RemoteLogSegmentMetadataRecord
    epochs = [
        kind.SegmentLeaderEpochEntry(leader_epoch=each.epoch, offset=each.start_offset)
        for each in segment.leader_epochs
    ]
    message = kind(
        remote_log_segment_id=_name(kind, segment), start_offset=segment.base_offset, end_offset=segment.end_offset,
        broker_id=1, max_timestamp_ms=segment.max_timestamp, event_timestamp_ms=event_ms, segment_leader_epochs=epochs,
        segment_size_in_bytes=segment.size, custom_metadata=segment.custom_metadata, remote_log_segment_state=state,
        txn_index_empty=segment.transaction_index_empty, **others,
    )  # fmt: skip
    return bytes((1, 0, version)) + bytes(message.encode(version=version, header=False))


def update_record(
    segment: RemoteLogSegment, state: int = FINISHED, event_ms: int = 0, version: int = 0, **others: Any
) -> bytes:
    """Return the record that says that the segment has another state; custom metadata comes with FINISHED."""
    kind = RemoteLogSegmentMetadataUpdateRecord
    message = kind(
        remote_log_segment_id=_name(kind, segment), broker_id=1, event_timestamp_ms=event_ms,
        custom_metadata=segment.custom_metadata, remote_log_segment_state=state, **others,
    )  # fmt: skip
    return bytes((1, 1, version)) + bytes(message.encode(version=version, header=False))


def decoded_update(
    partition: TopicIdPartition,
    segment_id: UUID,
    state: RemoteLogSegmentState,
    custom_metadata: bytes | None,
    end_offset: int = -1,
) -> SegmentMetadata:
    """Return what is decoded of a record by which a segment gets another state."""
    where = partition.topic_partition, partition.topic_id
    segment = RemoteLogSegment(*where, segment_id, 0, end_offset, 0, custom_metadata=custom_metadata)
    return SegmentMetadata(partition, segment, state, is_update=True)


def delete_record(partition: TopicIdPartition) -> bytes:
    """Return the record that says that the partition is deleted, with all its segments."""
    kind, (name, number) = RemotePartitionDeleteMetadataRecord, partition.topic_partition
    whose = kind.TopicIdPartitionEntry(name=name, id=partition.topic_id, partition=number)
    message = kind(topic_id_partition=whose, broker_id=1, event_timestamp_ms=1, remote_partition_delete_state=0)
    return b"\1\2\0" + bytes(message.encode(version=0, header=False))


def _name(kind: Any, segment: RemoteLogSegment) -> Any:
    partition = segment.topic_partition
    whose = (
        kind.fields["remote_log_segment_id"]
        .fields["topic_id_partition"]
        .data_class(name=partition.topic, id=segment.topic_id, partition=partition.partition)
    )
    return kind.RemoteLogSegmentIdEntry(topic_id_partition=whose, id=segment.segment_id)
