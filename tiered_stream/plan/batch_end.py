"""Where a micro-batch ends: `maxOffsetsPerTrigger`, shared out, and at segment ends where that allows it.

(Spark: `KafkaMicroBatchStream.rateLimit`, `delayBatch`.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition


def proportional_ends(start: PartitionOffsets, latest: PartitionOffsets, limit: int) -> dict[TopicPartition, int]:
    """Each partition's end when about `limit` offsets are shared out in proportion to what it has to read.

    A share below one is one, others are rounded down, and none goes beyond `latest`. A partition that is not in
    `start`, or starts at or beyond its end, ends at `latest`.
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
    """The ranges that a limit cut short: those whose end may move back to a segment end."""
    return {
        partition: OffsetRange(start[partition], end)
        for partition, end in ends.items()
        if partition in start and start[partition] < end < latest[partition]
    }


def ends_at_segments(
    ends: PartitionOffsets, segment_ends: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, int]:
    """`ends`, each moved back to its partition's last segment end, if there is one.

    `segment_ends` are those inside the partition's range, as `Backlog.segment_ends` gives them for `limited_ranges`:
    all lie above its start, so that a batch always gets on; where there is none, the share ends inside a segment.
    """
    return {
        partition: max((at for at in segment_ends.get(partition, ()) if at <= end), default=end)
        for partition, end in ends.items()
    }


def must_wait(
    start: PartitionOffsets, latest: PartitionOffsets, minimum: int, *, waited_ms: float, delay_ms: float
) -> bool:
    """Whether `minOffsetsPerTrigger` holds the batch back: too few new offsets, and not yet long enough waited.

    As in Spark, a partition that is not in `start` counts from 0 here.
    """
    new_offsets = sum(end - start.get(partition, 0) for partition, end in latest.items())
    return waited_ms < delay_ms and new_offsets < minimum
