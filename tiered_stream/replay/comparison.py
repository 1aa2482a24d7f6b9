"""Both sides as sums by buckets of offsets, joined: no record leaves the task that reads it, and all are read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.records.hashed_columns import row_hash_sql
from tiered_stream.replay.hashing import BUCKET_BITS, HASHES, SUMS, Hashing
from tiered_stream.replay.scope import Ranges, Scope, narrowed
from tiered_stream.replay.sums_source import HASHING, SOURCE
from tiered_stream.replay.verified_table import VerifiedTable

_KEYS = list(SUMS[:3])
_FIGURES = SUMS[3:]
MOST_CONDITIONS = 200
"""Partitions whose offsets a filter names one by one, so that Delta leaves out files; for more it has one range."""


Bounds = Mapping[TopicPartition, tuple[int, int]]
"""By partition from which offset, and to which, that not included."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A partition's sums: records on both sides, rows of the table outside, and the buckets that differ, inclusive."""

    topic_records: int
    table_records: int
    table_outside: int
    differing: int
    first: int | None
    last: int | None


@dataclass(frozen=True)
class Sides:
    """The topic and the table, as rows of `Hashing.answer`."""

    spark: SparkSession
    settings: Mapping[str, str]
    table: VerifiedTable
    times: TimeRange | None

    def hashing(self, *, each_row: bool) -> Hashing:
        return Hashing(self.table.columns, self.times, each_row)

    def topic_rows(self, source: str, ranges: Ranges, **options: str) -> DataFrame:
        """What one of our sources gives of the ranges."""
        headers = {"includeHeaders": str("headers" in self.table.columns).lower()}
        given = {**narrowed(self.settings, ranges), **headers, **options}
        return self.spark.read.format(source).options(**given).load()

    def topic_hashed(self, ranges: Ranges, *, each_row: bool) -> DataFrame:
        """The topic's sums, some of the same bucket, or its rows' hashes."""
        return self.topic_rows(SOURCE, ranges, **{HASHING: self.hashing(each_row=each_row).to_json()})

    def table_rows(self, condition: str) -> DataFrame:
        """The table's rows for which the condition holds, none outside of the times."""
        rows = self.table.rows.where(condition)
        if self.times is None:
            return rows
        return rows.where(timestamps_within(self.times))

    def table_hashed(self, bounds: Bounds) -> DataFrame:
        """The hashes of the table's rows within the bounds of few partitions."""
        hashed = f"{row_hash_sql(self.table.columns)} AS hash"
        return self.table_rows(within(bounds)).selectExpr(*HASHES[:-1], hashed)

    def table_sums(self, scope: Scope) -> DataFrame:
        """The table's sums, with the `lowest` and the `highest` offset of each.

        Where the scope depends on the table, rows outside of it are there too: their bucket is null.
        """
        bounds = scope.table_bounds()
        condition = of_topics(bounds) if scope.needs_table else within(bounds)
        rows = self.table_rows(condition).join(
            sql.broadcast(_bounds_frame(self.spark, bounds)),
            ["topic", "partition"],
            "left" if scope.needs_table and not scope.assigned else "inner",
        )
        bucket = f"CASE WHEN offset >= start AND offset < end THEN shiftright(offset, {BUCKET_BITS}) END AS bucket"
        hashed = rows.selectExpr(*_KEYS[:2], bucket, "offset", f"{row_hash_sql(self.table.columns)} AS hash")
        return hashed.groupBy(*_KEYS).agg(
            sql.expr("count(*) AS records"),
            sql.expr("sum(shiftrightunsigned(hash, 32)) AS high"),
            sql.expr("sum(hash & 4294967295) AS low"),
            sql.expr("min(offset) AS lowest"),
            sql.expr("max(offset) AS highest"),
        )


def within(bounds: Bounds) -> str:
    """SQL that holds for the rows within the bounds, and for no others unless there are many partitions."""
    if len(bounds) > MOST_CONDITIONS:
        low, high = min(start for start, _ in bounds.values()), max(end for _, end in bounds.values())
        return f"{of_topics(bounds)} AND offset >= {low} AND offset < {high}"
    topics: dict[str, list[str]] = {}
    for partition, (start, end) in bounds.items():
        condition = f"(partition = {partition.partition} AND offset >= {start} AND offset < {end})"
        topics.setdefault(partition.topic, []).append(condition)
    return " OR ".join(f"(topic = {_quoted(topic)} AND ({' OR '.join(some)}))" for topic, some in topics.items())


def timestamps_within(times: TimeRange) -> str:
    """SQL that holds for the rows with these timestamps."""
    end = "" if times.to_ms is None else f" AND timestamp < timestamp_millis({times.to_ms})"
    return f"timestamp >= timestamp_millis({times.from_ms}){end}"


def of_topics(partitions: Iterable[TopicPartition]) -> str:
    """SQL that holds for the rows of the partitions' topics."""
    return f"topic IN ({', '.join(_quoted(topic) for topic in sorted({each.topic for each in partitions}))})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _bounds_frame(spark: SparkSession, bounds: Bounds) -> DataFrame:
    rows = [[partition.topic, partition.partition, *ends] for partition, ends in bounds.items()]
    fields = ("topic", "partition", "start", "end")
    given = orjson.dumps([dict(zip(fields, row, strict=True)) for row in rows]).decode()
    kind = "array<struct<topic: string, partition: int, start: bigint, end: bigint>>"
    return spark.range(1).select(sql.inline(sql.from_json(sql.lit(given), kind)))


def table_ends(sums: DataFrame) -> dict[TopicPartition, OffsetRange]:
    """From the lowest to the highest offset that the sums are of, by partition."""
    rows = sums.where("bucket IS NOT NULL").groupBy(*_KEYS[:2]).agg(sql.min("lowest"), sql.max("highest")).collect()
    return {_partition(row): OffsetRange(max(0, row[2]), max(0, row[3]) + 1) for row in rows}


def compare(topic: DataFrame, table: DataFrame) -> dict[TopicPartition, Compared]:
    """The sums of both sides, by partition; of those on one side only, too."""
    added = [sql.sum(name).alias(f"topic_{name}") for name in _FIGURES]
    ours = topic.groupBy(*_KEYS).agg(*added)
    joined = ours.join(table, _KEYS, "full_outer")
    equal = " AND ".join(f"topic_{name} <=> {name}" for name in _FIGURES)
    figures = {
        "topic_records": "coalesce(sum(topic_records), 0)",
        "table_records": "coalesce(sum(records) FILTER (WHERE bucket IS NOT NULL), 0)",
        "table_outside": "coalesce(sum(records) FILTER (WHERE bucket IS NULL), 0)",
        "differing": "count_if(differs)",
        "first": "min(bucket) FILTER (WHERE differs)",
        "last": "max(bucket) FILTER (WHERE differs)",
    }
    differs = joined.withColumn("differs", sql.expr(f"bucket IS NOT NULL AND NOT ({equal})"))
    aggregates = [sql.expr(f"{expression} AS {name}") for name, expression in figures.items()]
    rows = differs.groupBy(*_KEYS[:2]).agg(*aggregates).collect()
    return {_partition(row): Compared(*(row[name] for name in figures)) for row in rows}


def _partition(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])
