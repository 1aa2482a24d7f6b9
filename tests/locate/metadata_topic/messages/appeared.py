"""Records that say that a broker has copied a segment, or copies it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.locate.metadata_topic.messages import RemoteLogSegmentMetadataRecord
from tiered_stream.locate.metadata_topic.remote_log_metadata import TopicIdPartition

COPYING, FINISHED = 0, 1


def segment_appeared(
    partition: TopicIdPartition,
    segment_id: UUID,
    offsets: tuple[int, int],
    size: int,
    *,
    state: int = FINISHED,
    epoch: int = 0,
) -> bytes:
    """Of a segment from one offset to another (inclusive), all in one leader epoch, without a transaction index."""
    kind = RemoteLogSegmentMetadataRecord
    message = kind(
        remote_log_segment_id=segment_name(kind, partition, segment_id),
        start_offset=offsets[0], end_offset=offsets[1], broker_id=1, max_timestamp_ms=0, event_timestamp_ms=0,
        segment_leader_epochs=[kind.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=0)],
        segment_size_in_bytes=size, custom_metadata=None, remote_log_segment_state=state, txn_index_empty=True,
    )  # fmt: skip
    return b"\x01\x00\x00" + bytes(message.encode(version=0, header=False))


def segment_name(kind: Any, partition: TopicIdPartition, segment_id: UUID) -> Any:
    """In a record of that kind."""
    entry = kind.fields["remote_log_segment_id"].fields["topic_id_partition"].data_class
    named = partition.topic_partition
    whose = entry(name=named.topic, id=partition.topic_id, partition=named.partition)
    return kind.RemoteLogSegmentIdEntry(topic_id_partition=whose, id=segment_id)
