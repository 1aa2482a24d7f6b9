"""Conversions between offset ranges by partition, their start and end offsets, and options of the source."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition
from tiered_stream.options import spark_options as spark
from tiered_stream.options.offset_json import offsets_to_json

Ranges = Mapping[TopicPartition, OffsetRange]


def starting_at(ranges: Ranges) -> dict[str, str]:
    """Return the options `assign` and `startingOffsets` to read the partitions of `ranges` from the ranges' starts."""
    assigned: dict[str, list[int]] = {}
    for partition in sorted(ranges):
        assigned.setdefault(partition.topic, []).append(partition.partition)
    starts = {partition: offsets.start for partition, offsets in ranges.items()}
    return {spark.ASSIGN.name: orjson.dumps(assigned).decode(), spark.STARTING_OFFSETS.name: offsets_to_json(starts)}


def ranges_between(starts: PartitionOffsets, ends: PartitionOffsets) -> dict[TopicPartition, OffsetRange]:
    """Return, for each partition in `ends`, the range from its offset in `starts` to its offset in `ends` (exclusive).

    If the end is below the start, the range is empty and begins at the start. `starts` must have every partition of
    `ends`.
    """
    return {partition: OffsetRange(starts[partition], max(starts[partition], end)) for partition, end in ends.items()}


def ends_of(ranges: Ranges) -> dict[TopicPartition, int]:
    """Return the end offset (exclusive) of each range, by partition."""
    return {partition: offsets.end for partition, offsets in ranges.items()}
