"""Comparison of topics with a Delta table by sums of row hashes, for the function `verify`.

All records are read once, in tasks that return only sums for each bucket of 65,536 offsets. For a partition whose sums
differ, the first differing bucket is read again, row by row. If the first differing record is in both, its columns are
then compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.offset_ranges import Ranges, times_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.remote_options import COLUMNS
from tiered_stream.options.spark_options import INCLUDE_HEADERS
from tiered_stream.records.row_hash import BUCKET, BUCKET_BITS, row_hash_sql
from tiered_stream.verification.scope import Scope, VerifiedTable, narrowed
from tiered_stream.verification.sums_source import HASHES_SOURCE, SUMS
from tiered_stream.verification.verify_report import ColumnDifference, Difference, Kind

MAX_CONDITIONS = 200
"""Maximum number of partitions for which a filter on a table names each partition's offset range, so that Delta can
skip files.

With more partitions, the filter has one offset range for all partitions.
"""
AT_ONCE = 32
"""Maximum number of partitions whose first differing buckets are read again in one Spark query."""

OWN_NAMES = {name: name for name in ("topic", "partition", "offset", "timestamp")}
"""Names of a table's columns by the name of Kafka's column, for a table with the names that the source gives them."""
_KEYS = list(SUMS[:3])
FIGURES = SUMS[3:]
_ROW_KEYS = ["topic", "partition", "offset"]
_KIND = """CASE
    WHEN copies IS NULL OR copies < topic_copies THEN 'missing'
    WHEN topic_copies IS NULL THEN 'extra'
    WHEN copies > topic_copies THEN 'doubled'
    WHEN least_hash <> topic_least_hash OR greatest_hash <> topic_greatest_hash THEN 'different'
END"""
_WINDOW = 24
"""Size in bytes of the blocks in which two values are compared. Only the first block that differs is sent to the
driver, and shown.
"""
_TEXTS = {
    "timestamp": "CAST(CAST(unix_micros(timestamp) AS STRING) AS BINARY)",
    "key": "key",
    "value": "value",
    "headers": "CASE WHEN size(headers) > 0 THEN CAST(to_json(headers) AS BINARY) END",
}


@dataclass(frozen=True)
class Sides:
    """The topics and the table that are compared. The methods build DataFrames of their records, row hashes or sums.

    `settings` are the options of the source. Only records with timestamps within `times` are compared. If `times` is
    None, all records are compared.
    """

    spark: SparkSession
    settings: Mapping[str, str] = field(repr=False)  # it may have secrets
    table: VerifiedTable
    times: TimeRange | None

    def topic_rows(self, ranges: Ranges, source: str = "tiered_stream") -> DataFrame:
        """Return the rows that the Spark source named `source` returns for the offset ranges `ranges`, by partition.

        If `source` is `tiered_stream`, the rows have topic, partition, offset, and the compared columns. The other
        sources are in `sums_source`.
        """
        settings = narrowed(self.settings, ranges) | times_options(self.times)
        settings[INCLUDE_HEADERS.name] = str("headers" in self.table.columns).lower()
        settings[COLUMNS.name] = ",".join((*_ROW_KEYS, *self.table.columns))
        return self.spark.read.format(source).options(**settings).load()

    def table_rows(self, condition: str) -> DataFrame:
        """Return the table's rows for which the SQL condition holds, and whose timestamps are within `times`."""
        rows = self.table.rows.where(condition)
        return rows if self.times is None else rows.where(timestamps_within(self.times))

    def table_sums(self, scope: Scope) -> DataFrame:
        """Return the table's sums of row hashes, one row for each bucket of each partition.

        The columns are `SUMS`, and the lowest and the highest offset in the bucket (`lowest`, `highest`). Rows outside
        of `scope.table_bounds()` are summed with null as their bucket. If `scope.needs_table` is false, only some of
        these outside rows are summed.
        """
        bounds = scope.table_bounds()
        condition = _within_topics(bounds) if scope.needs_table else within(bounds)
        how = "left" if scope.needs_table and not scope.assigned else "inner"
        bounds_frame = sql.broadcast(_bounds_frame(self.spark, bounds))
        rows = self.table_rows(condition).join(bounds_frame, _KEYS[:2], how)
        bucket = f"CASE WHEN offset >= start AND offset < end THEN shiftright(offset, {BUCKET_BITS}) END AS bucket"
        hashed = rows.selectExpr(*_KEYS[:2], bucket, "offset", f"{row_hash_sql(self.table.columns)} AS hash")
        ends = sql.min("offset").alias("lowest"), sql.max("offset").alias("highest")
        return hashed.groupBy(*_KEYS).agg(*hash_sums("hash"), *ends)


def hash_sums(value: str, prefix: str = "") -> list[Column]:
    """Return Spark aggregates: the number of hashes, and the sums of their upper and of their lower 32 bits.

    Args:
        value: SQL expression for the hash of a row; rows for which it is null do not count.
        prefix: text before the names of the aggregates, which are `FIGURES`.
    """
    sums = f"count({value})", f"sum(shiftrightunsigned({value}, 32))", f"sum({value} & 4294967295)"
    return [sql.expr(f"{text} AS {prefix}{name}") for name, text in zip(FIGURES, sums, strict=True)]


def within(bounds: Ranges) -> str:
    """Return an SQL condition that holds for all rows whose offsets are within the bounds of their partitions.

    With more than `MAX_CONDITIONS` partitions, the condition also holds for some rows outside of the bounds.
    """
    if len(bounds) <= MAX_CONDITIONS:
        return exactly_within(bounds)
    low, high = min(offsets.start for offsets in bounds.values()), max(offsets.end for offsets in bounds.values())
    return f"{_within_topics(bounds)} AND offset >= {low} AND offset < {high}"


def exactly_within(bounds: Ranges, names: Mapping[str, str] = OWN_NAMES) -> str:
    """Return an SQL condition that holds exactly for the rows whose offsets are within the bounds of their partitions.

    Args:
        names: name of the table's column for each of Kafka's columns, by Kafka's name.
    """
    number, offset, topic = (sql_name([names[name]]) for name in ("partition", "offset", "topic"))
    topics: dict[str, list[str]] = {}
    for partition, offsets in sorted(bounds.items()):
        condition = f"({number} = {partition.partition} AND {offset} >= {offsets.start} AND {offset} < {offsets.end})"
        topics.setdefault(partition.topic, []).append(condition)
    return " OR ".join(
        f"({topic} = {sql_text(name)} AND ({' OR '.join(conditions)}))" for name, conditions in topics.items()
    )


def timestamps_within(times: TimeRange, names: Mapping[str, str] = OWN_NAMES) -> str:
    """Return an SQL condition that holds for the rows whose timestamps are within `times`.

    Args:
        names: name of the table's column for each of Kafka's columns, by Kafka's name.
    """
    timestamp = sql_name([names["timestamp"]])
    end = "" if times.to_ms is None else f" AND {timestamp} < timestamp_millis({times.to_ms})"
    return f"{timestamp} >= timestamp_millis({times.from_ms}){end}"


def _within_topics(partitions: Iterable[TopicPartition]) -> str:
    return f"topic IN ({', '.join(map(sql_text, sorted({partition.topic for partition in partitions})))})"


def _bounds_frame(spark: SparkSession, bounds: Ranges) -> DataFrame:
    rows = [(*partition, offsets.start, offsets.end) for partition, offsets in bounds.items()]
    return spark.createDataFrame(rows, "topic STRING, partition INT, start BIGINT, end BIGINT")


def table_ends(sums: DataFrame) -> dict[TopicPartition, OffsetRange]:
    """Return the range from the lowest to the highest offset (inclusive) of each partition in a table's `sums`.

    `sums` are from `Sides.table_sums`. Rows with null as their bucket are left out.
    """
    rows = sums.where("bucket IS NOT NULL").groupBy(*_KEYS[:2]).agg(sql.min("lowest"), sql.max("highest")).collect()
    return {_partition(row): OffsetRange(row[2], row[3] + 1) for row in rows}


class Compared(NamedTuple):
    """Result of comparing one partition's sums.

    `topic_records` and `table_records` are numbers of compared records, and `table_outside` is the number of table rows
    outside of the compared offsets. `differing` is the offset range from the start of the first differing bucket to the
    end of the last one, or None if no bucket differs. A bucket has 65,536 offsets.
    """

    topic_records: int = 0
    table_records: int = 0
    table_outside: int = 0
    differing_buckets: int = 0
    differing: OffsetRange | None = None


def compare(topic: DataFrame, table: DataFrame) -> dict[TopicPartition, Compared]:
    """Compare the topic's sums with the table's sums, and return the results by partition.

    Both DataFrames have the columns `SUMS`. `topic` may have several rows for one bucket; `table` has at most one. The
    results include partitions of which only the topic or only the table has sums.
    """
    added = [sql.sum(name).alias(f"topic_{name}") for name in FIGURES]
    joined = topic.groupBy(*_KEYS).agg(*added).join(table, _KEYS, "full_outer")
    equal = " AND ".join(f"topic_{name} <=> {name}" for name in FIGURES)
    differs = joined.withColumn("differs", sql.expr(f"bucket IS NOT NULL AND NOT ({equal})"))
    figures = (
        "coalesce(sum(topic_records), 0)",
        "coalesce(sum(records) FILTER (WHERE bucket IS NOT NULL), 0)",
        "coalesce(sum(records) FILTER (WHERE bucket IS NULL), 0)",
        "count_if(differs)",
        f"min(bucket) FILTER (WHERE differs) * {BUCKET} AS start",
        f"(max(bucket) FILTER (WHERE differs) + 1) * {BUCKET} AS end",
    )
    rows = differs.groupBy(*_KEYS[:2]).agg(*map(sql.expr, figures)).collect()
    found = {}
    for row in rows:
        differing = None if row["start"] is None else OffsetRange(row["start"], row["end"])
        found[_partition(row)] = Compared(row[2], row[3], row[4], row[5], differing)
    return found


def _partition(row: Row) -> TopicPartition:
    """Return the partition that a row's columns `topic` and `partition` name."""
    return TopicPartition(row["topic"], row["partition"])


def first_differences(
    sides: Sides, bounds: Ranges, sums: Mapping[TopicPartition, Compared], offsets: Ranges
) -> dict[TopicPartition, Difference]:
    """Return the first difference of each partition whose sums differ.

    The first differing bucket (65,536 offsets) of each partition is read again from topic and table. If topic and table
    are now equal in this bucket, the partition is not in the result.

    Args:
        bounds: the table's offset ranges to compare, by partition.
        sums: results of `compare`, by partition.
        offsets: the topics' offset ranges to compare, by partition.
    """
    firsts = {partition: each.differing.start for partition, each in sums.items() if each.differing is not None}
    differences: dict[TopicPartition, Difference] = {}
    partitions = sorted(firsts)
    for begin in range(0, len(partitions), AT_ONCE):
        topic, table = {}, {}
        for partition in partitions[begin : begin + AT_ONCE]:
            bucket = OffsetRange(firsts[partition], firsts[partition] + BUCKET)
            topic[partition] = offsets[partition].intersect(bucket)
            table[partition] = bounds[partition].intersect(bucket)
        differences |= _differences(sides, topic, table)
    return differences


def _differences(sides: Sides, topic: Ranges, table: Ranges) -> dict[TopicPartition, Difference]:
    """Compare row hashes by offset, and return the first difference of each partition that differs.

    Args:
        topic: offset ranges to read from the topics, by partition.
        table: offset ranges to read from the table, by partition.
    """
    row_hash = row_hash_sql(sides.table.columns)
    ours = _by_offset(sides.topic_rows(topic, HASHES_SOURCE), "hash", "topic_")
    theirs = _by_offset(sides.table_rows(within(table)), row_hash, "")
    joined = ours.join(theirs, _ROW_KEYS, "full_outer")
    differing = joined.withColumn("kind", sql.expr(_KIND)).where("kind IS NOT NULL")
    counts = [sql.expr(f"count_if(kind = '{kind.value}') AS {kind.value}") for kind in Kind]
    first_of = sql.expr("min_by(struct(offset, kind, coalesce(copies, 0) AS copies), offset) AS first")
    rows = differing.groupBy(*_ROW_KEYS[:2]).agg(first_of, *counts).collect()
    firsts = {_partition(row): row["first"] for row in rows}
    different = {
        partition: first["offset"] for partition, first in firsts.items() if first["kind"] == Kind.DIFFERENT.value
    }
    columns = _column_differences(sides, different) if different else {}
    return {
        partition: Difference(
            first["offset"],
            Kind(first["kind"]),
            first["copies"],
            columns.get(partition, ()),
            tuple((kind, row[kind.value]) for kind in Kind if row[kind.value]),
        )
        for row, (partition, first) in zip(rows, firsts.items(), strict=True)
    }


def _by_offset(rows: DataFrame, row_hash: str, prefix: str) -> DataFrame:
    """Return, for each offset of each partition, the number of its rows, and the least and greatest hash of these rows.

    The columns are `copies`, `least_hash` and `greatest_hash`, each with `prefix` before its name. `row_hash` is the
    SQL expression for a row's hash.
    """
    return (
        rows.selectExpr(*_ROW_KEYS, f"{row_hash} AS hash")
        .groupBy(*_ROW_KEYS)
        .agg(
            sql.count("*").alias(f"{prefix}copies"),
            sql.min("hash").alias(f"{prefix}least_hash"),
            sql.max("hash").alias(f"{prefix}greatest_hash"),
        )
    )


def _column_differences(
    sides: Sides, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[ColumnDifference, ...]]:
    """Compare one record of each partition by columns; return the columns that differ, with both values.

    Args:
        offsets: the record's offset, by partition. The topic and the table each have one row with this offset.
    """
    columns = sides.table.columns
    ranges = {partition: OffsetRange(offset, offset + 1) for partition, offset in offsets.items()}
    ours = _texts(sides.topic_rows(ranges), columns, "topic_")
    theirs = _texts(sides.table_rows(within(ranges)), columns, "table_")
    rows = ours.join(theirs, _ROW_KEYS).selectExpr(*_ROW_KEYS, *map(_window, columns)).collect()
    return {
        _partition(row): tuple(_column_difference(name, row[name]) for name in columns if row[name]) for row in rows
    }


def _texts(rows: DataFrame, columns: tuple[str, ...], prefix: str) -> DataFrame:
    """Return `rows` with `columns` as bytes, and `prefix` before their names. Null and empty headers become null."""
    return rows.selectExpr(*_ROW_KEYS, *(f"{_TEXTS[name]} AS {prefix}{name}" for name in columns))


def _window(column: str) -> str:
    """Return an SQL expression that compares a column's value in the topic with its value in the table.

    The expression is null if the values are equal. Otherwise it is a struct of the first differing block, from both
    values, and the sizes of both values in bytes.
    """
    ours, theirs = f"topic_{column}", f"table_{column}"
    longest = f"greatest(octet_length({ours}), octet_length({theirs}))"
    topic, table = (f"substring({text}, start + 1, {_WINDOW})" for text in (ours, theirs))
    start_at = f"try_element_at(filter(sequence(0, {longest}, {_WINDOW}), start -> NOT {topic} <=> {table}), 1)"
    windows = f"transform(array({start_at}), start -> struct(start, {topic} AS topic, {table} AS table))[0]"
    sizes = f"octet_length({ours}) AS topic_size, octet_length({theirs}) AS table_size"
    return f"CASE WHEN NOT {ours} <=> {theirs} THEN struct({windows} AS windows, {sizes}) END AS {column}"


def _column_difference(column: str, row: Row) -> ColumnDifference:
    windows = row["windows"]
    topic, table = (None if window is None else bytes(window) for window in (windows["topic"], windows["table"]))
    if column == "timestamp":
        return ColumnDifference(column, _time(topic), _time(table))
    start = windows["start"]
    return ColumnDifference(column, _bytes(topic, row["topic_size"], start), _bytes(table, row["table_size"], start))


def _time(text: bytes | None) -> str:
    return "null" if text is None else f"{np.datetime64(int(text), 'us')}Z"


def _bytes(window: bytes | None, size: int | None, start: int) -> str:
    """Return a text that shows a value of at most 24 bytes completely, and otherwise only `window`.

    Args:
        window: the block of the value with the first difference, or None if the value is null.
        size: size of the whole value in bytes.
        start: position of the block in the value.
    """
    if window is None:
        return "null"
    if size is not None and size <= _WINDOW:
        return repr(window)
    return f"{window!r} at byte {start:,} of {size:,}"
