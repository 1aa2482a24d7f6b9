"""Records of `__remote_log_metadata` by which a broker says that it copies a segment, or has copied it."""

from __future__ import annotations

from typing import Any

from tests.locate.metadata_topic.messages import RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataUpdateRecord
from tiered_stream.locate.metadata_topic.remote_log_metadata import RemoteLogSegmentState
from tiered_stream.model import RemoteLogSegment

STARTED, FINISHED = RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def segment_record(segment: RemoteLogSegment, state: int = STARTED, event_ms: int = 0) -> bytes:
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
        txn_index_empty=segment.transaction_index_empty,
    )  # fmt: skip
    return b"\x01\x00\x00" + bytes(message.encode(version=0, header=False))


def update_record(segment: RemoteLogSegment, state: int = FINISHED) -> bytes:
    """Return the record that says that the segment has another state; custom metadata comes with FINISHED."""
    kind = RemoteLogSegmentMetadataUpdateRecord
    message = kind(
        remote_log_segment_id=_name(kind, segment), broker_id=1, event_timestamp_ms=0,
        custom_metadata=segment.custom_metadata, remote_log_segment_state=state,
    )  # fmt: skip
    return b"\x01\x01\x00" + bytes(message.encode(version=0, header=False))


def _name(kind: Any, segment: RemoteLogSegment) -> Any:
    partition = segment.topic_partition
    whose = (
        kind.fields["remote_log_segment_id"]
        .fields["topic_id_partition"]
        .data_class(name=partition.topic, id=segment.topic_id, partition=partition.partition)
    )
    return kind.RemoteLogSegmentIdEntry(topic_id_partition=whose, id=segment.segment_id)
