"""Conversions between start and end offsets, offset ranges, and the options of the source that read these ranges."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition
from tiered_stream.options import remote_options as remote
from tiered_stream.options import spark_options as spark
from tiered_stream.options.given_options import OPTIONS
from tiered_stream.options.offset_json import offsets_to_json
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.settings_files import POSITIONS, without
from tiered_stream.options.types import Queries

Ranges = Mapping[TopicPartition, OffsetRange]
STREAM_OPTIONS = tuple(option.name for option in OPTIONS if option.queries is Queries.STREAMING)


def batch_options(settings: Mapping[str, str], ranges: Ranges) -> dict[str, str]:
    """Return the options of a batch query that reads exactly `ranges`.

    Args:
        settings: further options of the source, by name. Options for topics, starts and ends are left out, and so are
            options for streaming only.
        ranges: the offset range of each partition to read.
    """
    ends = {spark.ENDING_OFFSETS.name: offsets_to_json(ends_of(ranges))}
    return without(settings, (*POSITIONS, *STREAM_OPTIONS)) | starting_at(ranges) | ends


def times_options(times: TimeRange | None) -> dict[str, str]:
    """Return the options that limit a query to records with timestamps within `times`; {} if `times` is None."""
    if times is None:
        return {}
    end = {} if times.to_ms is None else {remote.TO_TIMESTAMP.name: str(times.to_ms)}
    return {remote.FROM_TIMESTAMP.name: str(times.from_ms), **end}


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


def extend_ranges(ranges: dict[TopicPartition, OffsetRange], others: Ranges) -> None:
    """Change `ranges` so that each partition's range also covers the partition's range in `others`.

    A partition that is only in `others` is added.
    """
    for partition, offsets in others.items():
        known = ranges.get(partition, offsets)
        ranges[partition] = OffsetRange(min(known.start, offsets.start), max(known.end, offsets.end))
