"""A segment to put into stores, and the options that lead to it."""

from __future__ import annotations

from uuid import UUID

from tiered_stream.model import RemoteLogSegment, TopicPartition


def segment(size: int, base_offset: int = 0, transaction_index_empty: bool = False) -> RemoteLogSegment:
    """Partition 3 of topic `orders`; the segment id tells its base offset."""
    return RemoteLogSegment(
        topic_partition=TopicPartition("orders", 3),
        topic_id=UUID(int=1),
        segment_id=UUID(int=base_offset + 2),
        base_offset=base_offset,
        end_offset=base_offset + 9,
        size=size,
        transaction_index_empty=transaction_index_empty,
    )
