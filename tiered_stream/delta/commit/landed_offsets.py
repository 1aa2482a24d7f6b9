"""Offsets that a table has, as its commits name them, and a check that a query does not land them a second time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

import orjson
from pyspark.sql import SparkSession

from tiered_stream.delta.commit.table_log import QueryCommit, committed_topic_ids
from tiered_stream.delta.settings.ingest_settings import LAND, ON_LANDED_OFFSETS
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_json
from tiered_stream.options.offset_ranges import ends_of
from tiered_stream.options.positions import show_time


@dataclass(frozen=True, slots=True)
class LandedOffsets:
    """Offset range of each partition that covers all offsets that the commits of a table name.

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
    """Extend each range in `ranges` to cover the partition's range in `others`, too; add partitions that it lacks."""
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


log = logging.getLogger(__name__)

# Check that no other query has landed a new query's first records in the same table: a lost checkpoint.

_MAX_SHOWN = 3
"""Maximum number of partitions that the error names."""


@dataclass(frozen=True, slots=True)
class LandedBefore:
    """Result of `landed_before`, if other queries have landed offsets that a query is about to land in its table.

    `text` is a sentence that names these offsets and queries. `advice` says how to continue.
    """

    text: str
    advice: str


def refuse_landed_before(found: LandedBefore | None, *, fail: bool) -> None:
    """Raise an error, or log a warning, if another query has landed offsets of a query's first batch.

    Args:
        found: result of `landed_before`. If it is None, do nothing.
        fail: true to raise the error, false to log the warning.

    Raises:
        TableError: another query has landed offsets of the batch. The message says how to continue.
    """
    if found is not None and fail:
        raise TableError(f"{found.text}. A query without its checkpoint begins again. {found.advice}")
    if found is not None:
        log.warning("%s. This query lands them again", found.text)


def landed_before(
    commits: Iterable[QueryCommit],
    name: str,
    query_id: str | None,
    wanted: PartitionRanges,
    topic_ids: Mapping[str, UUID],
) -> LandedBefore | None:
    """Search commits of a table for offsets in `wanted` that another query has landed.

    Args:
        commits: newest commits in the table's log (`TableLog.newest_commits`).
        name: the table, for the text.
        query_id: the query that is about to land the offsets `wanted`; None: it has no id yet.
        topic_ids: ids of the topics, as far as they are known. Topics with other ids in a commit do not count.

    Returns:
        Texts about the other queries that have landed offsets in `wanted`. None: no other query has landed any of
            `wanted`.
    """
    others = [
        (commit, ranges)
        for commit in commits
        if commit.query_id != query_id and (ranges := _of_same_topics(commit.metadata, topic_ids))
    ]
    queries = {commit.query_id for commit, ranges in others if _in_both(wanted, ranges)}
    if not queries:
        return None
    times = [commit.at_ms for commit, _ in others if commit.query_id in queries]
    landed: dict[TopicPartition, OffsetRange] = {}
    for commit, ranges in others:
        if commit.query_id in queries:
            extend_ranges(landed, ranges)
    text = (
        f"{name} has offsets of this query's first records already: {_shown(_in_both(wanted, landed))}. The query "
        f"{' and '.join(sorted(queries))} landed them, between {show_time(min(times))} and {show_time(max(times))}"
    )
    advice = (
        "Go on with the old checkpoint. If it is lost, go on at the table's end with "
        f"startingOffsets={offsets_to_json(ends_of(landed))} and a checkpoint folder that does not exist: delete the "
        "folder of a refused start, which holds the plan of its first micro-batch, or name another folder. To fill a "
        f"gap, use tiered-stream replay. To land these records again, set {ON_LANDED_OFFSETS.name}={LAND}"
    )
    return LandedBefore(text, advice)


def _of_same_topics(metadata: str, topic_ids: Mapping[str, UUID]) -> PartitionRanges:
    """Return the offset ranges in a commit's user metadata, without topics that were created again since."""
    ids = committed_topic_ids(metadata)
    return {
        partition: offsets
        for partition, offsets in committed_ranges(metadata).items()
        if ids.get(partition.topic) in (None, topic_ids.get(partition.topic, ids.get(partition.topic)))
    }


def _in_both(wanted: PartitionRanges, landed: PartitionRanges) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets that are in both mappings, by partition; partitions without shared offsets are left out."""
    both = {partition: wanted[partition].intersect(landed[partition]) for partition in wanted.keys() & landed.keys()}
    return {partition: offsets for partition, offsets in both.items() if offsets}


def _shown(ranges: PartitionRanges) -> str:
    texts = [f"{partition} {offsets.start} to {offsets.end}" for partition, offsets in sorted(ranges.items())]
    return ", ".join(texts[:_MAX_SHOWN]) + (f" and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else "")
