"""Lag of a query behind its topics: the number of unread offsets of each partition."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.model import PartitionOffsets, TopicPartition


def offset_lag(end: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
    """Return, by partition, the number of offsets from a micro-batch's end (`end`) to the log's end (`latest`).

    The micro-batch's end is 0 for a partition that is missing in `end`.
    """
    return {partition: max(0, log_end - end.get(partition, 0)) for partition, log_end in latest.items()}


def describe_lag(lag: Mapping[TopicPartition, int]) -> str:
    """Format the sum over all partitions, and the partition with the largest lag if several partitions have one."""
    text = f"lag {sum(lag.values()):,} offsets"
    if sum(map(bool, lag.values())) > 1:
        largest = max(lag, key=lambda partition: (lag[partition], partition))
        text += f" ({lag[largest]:,} in {largest})"
    return text
