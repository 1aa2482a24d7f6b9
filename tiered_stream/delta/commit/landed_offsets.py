"""Offsets that a table has, as the user metadata of its commits name them (`BatchCommit.metadata`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition
from tiered_stream.options.offset_json import offsets_from_dict


@dataclass(frozen=True, slots=True)
class LandedOffsets:
    """Lowest and highest offset of each partition that commits of a table name, as ranges.

    `is_complete` is False if the table's history no longer has its first version, so that earlier commits are unknown.
    """

    ranges: Mapping[TopicPartition, OffsetRange]
    is_complete: bool


def landed_offsets(spark: SparkSession, table: str, version: int | None = None) -> LandedOffsets:
    """Return the offsets that the commits of a Delta table name.

    Args:
        spark: the session.
        table: the table's name as SQL text.
        version: last version whose commit counts; None: the newest one.

    Raises:
        PySparkException: Spark cannot read the table's history.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    first: int | None = None
    for row in spark.sql(f"DESCRIBE HISTORY {table}").select("version", "userMetadata").toLocalIterator():
        if version is not None and row["version"] > version:
            continue
        first = row["version"] if first is None else min(first, row["version"])
        extend_ranges(ranges, committed_ranges(row["userMetadata"]))
    return LandedOffsets(ranges, first == 0)


def extend_ranges(ranges: dict[TopicPartition, OffsetRange], others: PartitionRanges) -> None:
    """Extend each partition's range in `ranges` to the lowest and the highest offset of it and of `others`."""
    for partition, offsets in others.items():
        known = ranges.get(partition, offsets)
        ranges[partition] = OffsetRange(min(known.start, offsets.start), max(known.end, offsets.end))


def committed_ranges(metadata: str | None) -> dict[TopicPartition, OffsetRange]:
    """Return the offset ranges in a commit's user metadata, by partition; empty for the metadata of another writer."""
    try:
        values = orjson.loads(metadata or "")
        starts, ends = offsets_from_dict(values["startOffsets"]), offsets_from_dict(values["endOffsets"])
        return {partition: OffsetRange(start, ends[partition]) for partition, start in starts.items()}
    except (ValueError, KeyError, TypeError, ConfigurationError):
        return {}
