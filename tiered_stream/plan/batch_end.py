"""Ends of micro-batches by `maxOffsetsPerTrigger`, shared out to partitions and moved to segment ends if possible.

(Spark: `KafkaMicroBatchStream.rateLimit`, `delayBatch`.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition


def proportional_ends(start: PartitionOffsets, latest: PartitionOffsets, limit: int) -> dict[TopicPartition, int]:
    """Return each partition's end if about `limit` offsets are shared out in proportion to its offsets to read.

    A share below 1 becomes 1, other shares are rounded down, and no share goes beyond `latest`. A partition that is not
    in `start`, or starts at or beyond its end, ends at `latest`.
    """
    lags = {partition: max(0, end - start.get(partition, end)) for partition, end in latest.items()}
    total = sum(lags.values())
    ends = dict(latest)
    for partition, lag in lags.items():
        if lag:
            share = max(1, limit * lag // total)
            ends[partition] = min(latest[partition], start[partition] + share)
    return ends


def limited_ranges(
    start: PartitionOffsets, ends: PartitionOffsets, latest: PartitionOffsets
) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges that a limit has cut short; their ends may move back to a segment end."""
    return {
        partition: OffsetRange(start[partition], end)
        for partition, end in ends.items()
        if partition in start and start[partition] < end < latest[partition]
    }


def ends_at_segments(
    ends: PartitionOffsets, segment_ends: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, int]:
    """Return `ends`, moved back to the partition's last segment end in `segment_ends` if there is one.

    `segment_ends` are the segment ends inside the partition's range (`Backlog.segment_ends` of `limited_ranges`). They
    are above the range's start, so a batch always makes progress. Without such a segment end, the batch ends inside a
    segment.
    """
    return {
        partition: max((at for at in segment_ends.get(partition, ()) if at <= end), default=end)
        for partition, end in ends.items()
    }


def must_wait(
    start: PartitionOffsets, latest: PartitionOffsets, minimum: int, *, waited_ms: float, delay_ms: float
) -> bool:
    """Return whether `minOffsetsPerTrigger` holds the batch back: too few new offsets, and the wait was too short.

    As in Spark, a partition that is not in `start` counts from offset 0 here.
    """
    new_offsets = sum(end - start.get(partition, 0) for partition, end in latest.items())
    return waited_ms < delay_ms and new_offsets < minimum
