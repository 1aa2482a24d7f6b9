"""Made-up segments for tests."""

from __future__ import annotations

from tests.tier.segments import TOPIC_ID, described
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.metadata_topic.remote_log_metadata import TopicIdPartition
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.model import PartitionRanges, RemoteLogSegment, TopicPartition

PARTITION = TopicPartition("orders", 0)


def segment(
    number: int, base_offset: int, end: int, epochs: tuple[tuple[int, int], ...] = (), size: int = 1000
) -> RemoteLogSegment:
    """Describe a segment of one partition, as `described` does."""
    return described(PARTITION, base_offset, end, number, topic_id=TOPIC_ID, size=size, epochs=epochs)


def segment_ends(locator: Locator, ranges: PartitionRanges) -> dict[TopicPartition, tuple[int, ...]]:
    """The end offsets of the located segments that end inside each range or at its end."""
    return {
        partition: tuple(
            part.offsets.end
            for part in parts
            if part.offsets.end < ranges[partition].end
            or part.offsets.end == part.segment.end_offset + 1 == ranges[partition].end
        )
        for partition, parts in locator.segments(ranges).items()
    }


def named_partitions(table: SegmentTable) -> list[TopicIdPartition]:
    """The partitions that a table's records have named."""
    return [partition for slots in table._slots.values() for partition in slots]
