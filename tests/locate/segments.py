"""Made-up segments for tests."""

from __future__ import annotations

from uuid import UUID

from tiered_stream.locate.locator import Locator
from tiered_stream.model import LeaderEpoch, PartitionRanges, RemoteLogSegment, TopicPartition

TOPIC_ID = UUID(int=7)
PARTITION = TopicPartition("orders", 0)


def segment(
    number: int, base_offset: int, end: int, epochs: tuple[tuple[int, int], ...] = (), size: int = 1000
) -> RemoteLogSegment:
    """Segment `number` with the offsets from `base_offset` to `end` (exclusive); all in epoch 0 unless `epochs` say."""
    return RemoteLogSegment(
        topic_partition=PARTITION,
        topic_id=TOPIC_ID,
        segment_id=UUID(int=number),
        base_offset=base_offset,
        end_offset=end - 1,
        size=size,
        leader_epochs=tuple(LeaderEpoch(epoch, start) for epoch, start in epochs or ((0, base_offset),)),
    )


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
