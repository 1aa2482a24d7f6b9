"""Where exactly the two sides differ: a partition's first differing bucket again, row by row, and then one record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql

from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.replay.comparison import Sides, partition_of, within
from tiered_stream.replay.replay_plan import Ranges
from tiered_stream.replay.scope import Bounds
from tiered_stream.replay.sums_source import HASHES
from tiered_stream.replay.verify_report import ColumnDifference, Difference, Kind

AT_ONCE = 32
"""Partitions whose buckets are read again together."""

_KEYS = list(HASHES[:3])
_KIND = """CASE
    WHEN copies IS NULL OR copies < topic_copies THEN 'missing'
    WHEN topic_copies IS NULL THEN 'extra'
    WHEN copies > topic_copies THEN 'doubled'
    WHEN least_hash <> topic_least_hash OR greatest_hash <> topic_greatest_hash THEN 'different'
END"""
_WINDOW = 64
"""Bytes of a value that come to the driver: those around the first that differs."""
_SHOWN = 24
_TEXTS = {
    "timestamp": "CAST(CAST(unix_micros(timestamp) AS STRING) AS BINARY)",
    "key": "key",
    "value": "value",
    "headers": "CASE WHEN size(headers) > 0 THEN CAST(to_json(headers) AS BINARY) END",
}


def first_differences(sides: Sides, topic: Ranges, table: Bounds) -> dict[TopicPartition, Difference]:
    """By partition, the first offset that differs within the offsets of the topic and those of the table.

    At most a bucket of each partition: they are read again on both sides. A partition is left out when nothing differs.
    """
    found: dict[TopicPartition, Difference] = {}
    partitions = sorted(table)
    for start in range(0, len(partitions), AT_ONCE):
        some = partitions[start : start + AT_ONCE]
        found |= _differences(sides, {each: topic[each] for each in some}, {each: table[each] for each in some})
    return found


def _differences(sides: Sides, topic: Ranges, table: Bounds) -> dict[TopicPartition, Difference]:
    ours = _by_offset(sides.topic_hashed(topic, each_row=True), "topic_")
    joined = ours.join(_by_offset(sides.table_hashed(table), ""), _KEYS, "full_outer")
    differing = joined.withColumn("kind", sql.expr(_KIND)).where("kind IS NOT NULL")
    counts = [sql.expr(f"count_if(kind = '{kind.value}') AS {kind.value}") for kind in Kind]
    first = sql.expr("min_by(struct(offset, kind, coalesce(copies, 0) AS copies), offset) AS first")
    rows = differing.groupBy(*_KEYS[:2]).agg(first, *counts).collect()
    firsts = {partition_of(row): row["first"] for row in rows}
    different = {each: found["offset"] for each, found in firsts.items() if found["kind"] == Kind.DIFFERENT.value}
    columns = _column_differences(sides, different) if different else {}
    return {
        partition: Difference(
            found["offset"],
            Kind(found["kind"]),
            found["copies"],
            columns.get(partition, ()),
            tuple((kind, row[kind.value]) for kind in Kind if row[kind.value]),
        )
        for row, (partition, found) in zip(rows, firsts.items(), strict=True)
    }


def _by_offset(rows: DataFrame, prefix: str) -> DataFrame:
    return rows.groupBy(*_KEYS).agg(
        sql.count("*").alias(f"{prefix}copies"),
        sql.min("hash").alias(f"{prefix}least_hash"),
        sql.max("hash").alias(f"{prefix}greatest_hash"),
    )


def _column_differences(
    sides: Sides, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[ColumnDifference, ...]]:
    """What differs in one record of each partition, of which there is one on either side."""
    columns = sides.table.columns
    ranges = {partition: OffsetRange(offset, offset + 1) for partition, offset in offsets.items()}
    bounds = {partition: (offset, offset + 1) for partition, offset in offsets.items()}
    ours = _texts(sides.topic_rows("tiered_stream", ranges), columns, "topic_")
    theirs = _texts(sides.table_rows(within(bounds)), columns, "table_")
    rows = ours.join(theirs, _KEYS).selectExpr(*_KEYS, *map(_window, columns)).collect()
    return {partition_of(row): tuple(_shown(name, row[name]) for name in columns if row[name]) for row in rows}


def _texts(rows: DataFrame, columns: tuple[str, ...], prefix: str) -> DataFrame:
    return rows.selectExpr(*_KEYS, *(f"{_TEXTS[name]} AS {prefix}{name}" for name in columns))


def _window(column: str) -> str:
    """SQL: null where both sides are the same; else their sizes, and what they have where they first differ."""
    ours, theirs = f"topic_{column}", f"table_{column}"
    longest = f"greatest(octet_length({ours}), octet_length({theirs}))"
    topic, table = (f"substring({text}, start + 1, {_WINDOW})" for text in (ours, theirs))
    at = f"try_element_at(filter(sequence(0, {longest}, {_WINDOW}), start -> NOT {topic} <=> {table}), 1)"
    there = f"transform(array({at}), start -> struct(start, {topic} AS topic, {table} AS table))[0]"
    sizes = f"octet_length({ours}) AS topic_size, octet_length({theirs}) AS table_size"
    return f"CASE WHEN NOT {ours} <=> {theirs} THEN struct({there} AS there, {sizes}) END AS {column}"


def _shown(column: str, found: Row) -> ColumnDifference:
    there = found["there"]
    topic, table = (None if window is None else bytes(window) for window in (there["topic"], there["table"]))
    if column == "timestamp":
        return ColumnDifference(column, _time(topic), _time(table))
    pairs = enumerate(zip(topic or b"", table or b"", strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(topic or b""), len(table or b"")))
    topic_value = _bytes(topic, found["topic_size"], there["start"], same)
    return ColumnDifference(column, topic_value, _bytes(table, found["table_size"], there["start"], same))


def _time(text: bytes | None) -> str:
    return "null" if text is None else f"{np.datetime64(int(text), 'us')}Z"


def _bytes(window: bytes | None, size: int | None, start: int, same: int) -> str:
    """A value in short: all of it, or where it differs; `window` begins at `start`, `same` bytes of it are equal."""
    if window is None:
        return "null"
    if size is not None and size <= _SHOWN:
        return repr(window)
    return f"{window[same : same + _SHOWN]!r} at byte {start + same:,} of {size:,}"
