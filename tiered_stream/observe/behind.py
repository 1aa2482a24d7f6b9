"""How far a query is behind its topics, by partition."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.model import PartitionOffsets, TopicPartition


def behind(end: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
    """The offsets between a micro-batch's end and the log's end; a partition that the batch does not have, from 0."""
    return {partition: max(0, log_end - end.get(partition, 0)) for partition, log_end in latest.items()}


def describe_lag(lag: Mapping[TopicPartition, int]) -> str:
    """The sum, and which partition has the most of it, where several are behind."""
    text = f"lag {sum(lag.values()):,} offsets"
    if sum(map(bool, lag.values())) > 1:
        most = max(lag, key=lambda partition: (lag[partition], partition))
        text += f" ({lag[most]:,} in {most})"
    return text
