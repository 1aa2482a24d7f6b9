"""Lag of a query behind its topics: the number of unread offsets of each partition."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.model import PartitionOffsets, TopicPartition


def offset_lag(end: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
    """Return the number of offsets from a micro-batch's end to the log's end, for each partition in `latest`.

    Args:
        end: end offsets of the micro-batch; 0 for a partition that is missing.
        latest: end offsets of the logs.
    """
    return {partition: max(0, log_end - end.get(partition, 0)) for partition, log_end in latest.items()}


def describe_lag(lag: Mapping[TopicPartition, int]) -> str:
    """Format the total lag of all partitions as text; if several partitions lag, name the one with the largest lag."""
    text = f"lag {sum(lag.values()):,} offsets"
    if sum(map(bool, lag.values())) > 1:
        largest = max(lag, key=lambda partition: (lag[partition], partition))
        text += f" ({lag[largest]:,} in {largest})"
    return text
