"""Both sides as sums by buckets of offsets, joined: no record leaves the task that reads it, and all are read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, TimestampType

from tiered_stream.delta.address import TableAddress, find_address, spark_errors
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.records.hashed_columns import HASHED, row_hash_sql
from tiered_stream.replay.replay_plan import Ranges
from tiered_stream.replay.scope import Bounds, Scope, narrowed
from tiered_stream.replay.sums_source import BUCKET, BUCKET_BITS, HASHES, HASHING, SOURCE, SUMS, Hashing
from tiered_stream.source import spark_schema

_KEYS = list(SUMS[:3])
_FIGURES = SUMS[3:]
MOST_CONDITIONS = 200
"""Partitions whose offsets a filter names one by one, so that Delta leaves out files; for more it has one range."""

_NEEDED = ("topic", "partition", "offset")
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "offset": (LongType, IntegerType),
    "timestamp": (TimestampType,),
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
}


@dataclass(frozen=True)
class VerifiedTable:
    """A Delta table at one `version`: `rows` have `topic`, `partition`, `offset` and `columns`, as the source has them.

    `columns` are those of `HASHED` that the table has.
    """

    name: str
    version: int
    columns: tuple[str, ...]
    rows: DataFrame


def open_verified(spark: SparkSession, table: str) -> VerifiedTable:
    """The table, a path if it has a slash in it, at its latest version: what is written meanwhile is not seen.

    Raises:
        ConfigurationError: there is no Delta table, or its columns are not those of records.
        TableError: Spark cannot reach it.
    """
    address = find_address(spark, table)
    with spark_errors(table, "read"):
        version, rows = _latest(spark, address)
        columns = {column.lower(): column for column in rows.columns}
    present = [name for name in (*_NEEDED, *HASHED) if name in columns]
    types = {name: _cast(table, name, rows.schema[columns[name]].dataType) for name in present}
    missing = [name for name in _NEEDED if name not in present]
    if missing or len(present) == len(_NEEDED):
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has no column {' and '.join(missing) or ' or '.join(HASHED)}; "
            "they must bear the names that they have in the source"
        )
    named = [rows[columns[name]].cast(kind).alias(name) for name, kind in types.items()]
    return VerifiedTable(str(address), version, tuple(present[len(_NEEDED) :]), rows.select(*named))


def _latest(spark: SparkSession, address: TableAddress) -> tuple[int, DataFrame]:
    """The table's latest version, and its rows."""
    try:
        latest = spark.sql(f"DESCRIBE HISTORY {address.sql_name} LIMIT 1").first()
        assert latest is not None
        rows = spark.sql(f"SELECT * FROM {address.sql_name} VERSION AS OF {latest['version']}")
    except AnalysisException as error:
        raise ConfigurationError(f"there is no Delta table {address}: {str(error).splitlines()[0]}") from error
    return latest["version"], rows


def _cast(table: str, name: str, kind: DataType) -> DataType:
    """What the column is cast to: the source's own type. Text is bytes: Spark keeps those that are no UTF-8, too.

    Raises:
        ConfigurationError: it may be something else than what the record had.
    """
    wanted = spark_schema(include_headers=True)[name].dataType
    same = kind.simpleString() == wanted.simpleString() if name == "headers" else isinstance(kind, _TYPES[name])
    if not same:
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has {name} as {kind.simpleString()}, "
            f"and records have it as {wanted.simpleString()}"
        )
    return wanted


@dataclass(frozen=True)
class Sides:
    """The topic and the table, as rows of `Hashing.answer`."""

    spark: SparkSession
    settings: Mapping[str, str]
    table: VerifiedTable
    times: TimeRange | None

    def topic_rows(self, source: str, ranges: Ranges, **options: str) -> DataFrame:
        """What one of our sources gives of the ranges."""
        headers = {"includeHeaders": str("headers" in self.table.columns).lower()}
        given = {**narrowed(self.settings, ranges), **headers, **options}
        return self.spark.read.format(source).options(**given).load()

    def topic_hashed(self, ranges: Ranges, *, each_row: bool) -> DataFrame:
        """The topic's sums, some of the same bucket, or its rows' hashes."""
        hashing = Hashing(self.table.columns, self.times, each_row)
        return self.topic_rows(SOURCE, ranges, **{HASHING: hashing.to_json()})

    def table_rows(self, condition: str) -> DataFrame:
        """The table's rows for which the condition holds, none outside of the times."""
        rows = self.table.rows.where(condition)
        return rows if self.times is None else rows.where(timestamps_within(self.times))

    def table_hashed(self, bounds: Bounds) -> DataFrame:
        """The hashes of the table's rows within the bounds of few partitions."""
        hashed = f"{row_hash_sql(self.table.columns)} AS hash"
        return self.table_rows(within(bounds)).selectExpr(*HASHES[:-1], hashed)

    def table_sums(self, scope: Scope) -> DataFrame:
        """The table's sums, with the `lowest` and the `highest` offset of each.

        Where the scope depends on the table, rows outside of it are there too: their bucket is null.
        """
        bounds = scope.table_bounds()
        condition = _of_topics(bounds) if scope.needs_table else within(bounds)
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
    if len(bounds) <= MOST_CONDITIONS:
        return exactly_within(bounds)
    low, high = min(start for start, _ in bounds.values()), max(end for _, end in bounds.values())
    return f"{_of_topics(bounds)} AND offset >= {low} AND offset < {high}"


def exactly_within(bounds: Bounds) -> str:
    """SQL that holds for the rows within the bounds."""
    topics: dict[str, list[str]] = {}
    for partition, (start, end) in sorted(bounds.items()):
        condition = f"(partition = {partition.partition} AND offset >= {start} AND offset < {end})"
        topics.setdefault(partition.topic, []).append(condition)
    return " OR ".join(f"(topic = {_quoted(topic)} AND ({' OR '.join(some)}))" for topic, some in topics.items())


def timestamps_within(times: TimeRange) -> str:
    """SQL that holds for the rows with these timestamps."""
    end = "" if times.to_ms is None else f" AND timestamp < timestamp_millis({times.to_ms})"
    return f"timestamp >= timestamp_millis({times.from_ms}){end}"


def _of_topics(partitions: Iterable[TopicPartition]) -> str:
    return f"topic IN ({', '.join(_quoted(topic) for topic in sorted({each.topic for each in partitions}))})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _bounds_frame(spark: SparkSession, bounds: Bounds) -> DataFrame:
    rows = [{"topic": at.topic, "partition": at.partition, "start": a, "end": b} for at, (a, b) in bounds.items()]
    kind = "array<struct<topic: string, partition: int, start: bigint, end: bigint>>"
    return spark.range(1).select(sql.inline(sql.from_json(sql.lit(orjson.dumps(rows).decode()), kind)))


def table_ends(sums: DataFrame) -> dict[TopicPartition, OffsetRange]:
    """From the lowest to the highest offset that the sums are of, by partition."""
    rows = sums.where("bucket IS NOT NULL").groupBy(*_KEYS[:2]).agg(sql.min("lowest"), sql.max("highest")).collect()
    return {partition_of(row): OffsetRange(max(0, row[2]), max(0, row[3]) + 1) for row in rows}


@dataclass(frozen=True, slots=True)
class Compared:
    """A partition's sums: records on both sides, rows of the table outside, and the buckets that differ, inclusive."""

    topic_records: int = 0
    table_records: int = 0
    table_outside: int = 0
    differing: int = 0
    first: int | None = None
    last: int | None = None

    @property
    def differing_offsets(self) -> OffsetRange | None:
        """From the first to the last bucket that differs."""
        if self.first is None or self.last is None:
            return None
        return OffsetRange(max(0, self.first * BUCKET), max(0, (self.last + 1) * BUCKET))


def compare(topic: DataFrame, table: DataFrame) -> dict[TopicPartition, Compared]:
    """The sums of both sides, by partition; of those on one side only, too."""
    added = [sql.sum(name).alias(f"topic_{name}") for name in _FIGURES]
    joined = topic.groupBy(*_KEYS).agg(*added).join(table, _KEYS, "full_outer")
    equal = " AND ".join(f"topic_{name} <=> {name}" for name in _FIGURES)
    differs = joined.withColumn("differs", sql.expr(f"bucket IS NOT NULL AND NOT ({equal})"))
    figures = (
        "coalesce(sum(topic_records), 0)",
        "coalesce(sum(records) FILTER (WHERE bucket IS NOT NULL), 0)",
        "coalesce(sum(records) FILTER (WHERE bucket IS NULL), 0)",
        "count_if(differs)",
        "min(bucket) FILTER (WHERE differs)",
        "max(bucket) FILTER (WHERE differs)",
    )
    rows = differs.groupBy(*_KEYS[:2]).agg(*map(sql.expr, figures)).collect()
    return {partition_of(row): Compared(*row[2:]) for row in rows}


def partition_of(row: Row) -> TopicPartition:
    """That of its columns `topic` and `partition`."""
    return TopicPartition(row["topic"], row["partition"])
