"""The lag of a query behind its topics, by partition."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.model import PartitionOffsets, TopicPartition


def offset_lag(end: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
    """Return, by partition, the number of offsets from a micro-batch's `end` to the log's end, `latest`.

    A partition that is not in `end` counts from offset 0.
    """
    return {partition: max(0, log_end - end.get(partition, 0)) for partition, log_end in latest.items()}


def describe_lag(lag: Mapping[TopicPartition, int]) -> str:
    """Format the sum of the lag, and the partition with the largest lag if several partitions are behind."""
    text = f"lag {sum(lag.values()):,} offsets"
    if sum(map(bool, lag.values())) > 1:
        largest = max(lag, key=lambda partition: (lag[partition], partition))
        text += f" ({lag[largest]:,} in {largest})"
    return text
