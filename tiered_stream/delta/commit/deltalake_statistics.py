"""Choice of the columns for which deltalake writes statistics, because readers lose rows by a bound that is not exact.

deltalake makes the statistics in Delta's log from the statistics in Parquet footers, so a column has both or none.
Bounds of these columns would be wrong or misread:

- floating-point columns: NaN is left out, but Spark sorts it above all numbers;
- decimals of more than 15 digits: bounds are rounded to 64-bit floating-point numbers, or cut at 2^63 - 1;
- dates and times outside of the years 1 to 9999: deltalake panics, leaves a bound out, or writes five digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Flag, auto
from functools import reduce
from math import inf
from operator import or_
from typing import Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from pyarrow import fs

from tiered_stream.delta.settings.ingest_settings import GZIP, SNAPPY, UNCOMPRESSED, ZSTD
from tiered_stream.delta.write.parquet_properties import SPARK_VERSION_KEY

_MAX_DIGITS = 15
"""Largest precision of a decimal whose values all survive a conversion to a double and back."""
_COMPRESSION: dict[str, Literal["SNAPPY", "ZSTD", "GZIP", "UNCOMPRESSED"]] = {
    SNAPPY: "SNAPPY", ZSTD: "ZSTD", GZIP: "GZIP", UNCOMPRESSED: "UNCOMPRESSED",
}  # fmt: skip
_WITH, _WITHOUT = ColumnProperties(statistics_enabled="PAGE"), ColumnProperties(statistics_enabled="NONE")


def writer_properties(table: DeltaTable, compression: str, *, with_times: bool) -> WriterProperties:
    """Return deltalake's writer properties, with statistics for the columns whose bounds deltalake writes exactly.

    `compression` is a value of `ingest.compression`. `with_times` must be false if a date or a time can be outside of
    the years 1 to 9999. If a nested column has a field without exact bounds, no nested column has statistics, because
    deltalake takes no path into a column.
    """
    kinds = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    flat = {name: kind for name, kind in kinds.items() if not pa.types.is_nested(kind)}
    nested = all(_is_exact(kind, with_times) for name, kind in kinds.items() if name not in flat)
    return WriterProperties(
        compression=_COMPRESSION[compression],
        default_column_properties=_WITH if nested else _WITHOUT,
        column_properties={name: _WITH if _is_exact(kind, with_times) else _WITHOUT for name, kind in flat.items()},
    )


def _is_exact(kind: pa.DataType, with_times: bool) -> bool:
    if pa.types.is_nested(kind):
        return all(_is_exact(kind.field(number).type, with_times) for number in range(kind.num_fields))
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _MAX_DIGITS)
    if pa.types.is_temporal(kind):
        return with_times
    return not pa.types.is_floating(kind)


# Search for dates and times in Parquet files that need care when deltalake rewrites the files.
#
# 1. Early values: dates before 1582-10-15, and timestamps before 1900. Spark reads these values right only if the
#    file's footer has the key `org.apache.spark.version`.
# 2. Values outside of the years 1 to 9999. Some readers of Delta's log cannot parse them as bounds.

_FIRST_DAY = -141_427
"""1582-10-15 in days since the epoch (Spark: `RebaseDateTime.lastSwitchGregorianDay`)."""
_FIRST_SECOND = -2_208_988_800
"""1900-01-01T00:00:00Z in seconds since the epoch; before 1900, time zones had odd offsets.

Spark: `RebaseDateTime.lastSwitchGregorianTs`.
"""
_DAYS = -719_162, 2_932_897
"""First day of the year 1, and of the year 10000, in days since the epoch."""
_TICKS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


class UnsafeTimes(Flag):
    """Kinds of dates and times in Parquet files that deltalake cannot rewrite right, or cannot write statistics of."""

    NONE = 0
    NEED_VERSION_KEY = auto()
    """A value is so early that Spark might misread it if the file were rewritten without `SPARK_VERSION_KEY`.

    deltalake cannot write this key into a file's footer. A file that does not have the key now is ignored.
    """
    BEYOND_YEARS = auto()
    """A value may be outside of the years 1 to 9999."""


def find_unsafe_times(folder: fs.FileSystem, paths: Iterable[str]) -> UnsafeTimes:
    """Return the kinds of dates and times in Parquet files that deltalake cannot rewrite right, by the files' footers.

    `paths` are relative to `folder`. If a footer has no bounds, the file counts as if it had such values. Raise OSError
    if a file cannot be read.
    """
    return reduce(or_, (_unsafe_times(pq.read_metadata(path, filesystem=folder)) for path in paths), UnsafeTimes.NONE)


def _unsafe_times(file: pq.FileMetaData) -> UnsafeTimes:
    has_key = SPARK_VERSION_KEY.encode() in (file.metadata or {})
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    found = UnsafeTimes.NONE
    for at in range(file.num_columns):
        if (limits := _limits(file.schema.column(at))) is not None:
            first_sure, ticks_of_day = limits
            for lowest, highest in filter(None, (_bounds(group.column(at)) for group in groups)):
                if has_key and lowest < first_sure:
                    found |= UnsafeTimes.NEED_VERSION_KEY
                if lowest < _DAYS[0] * ticks_of_day or highest >= _DAYS[1] * ticks_of_day:
                    found |= UnsafeTimes.BEYOND_YEARS
    return found


def _bounds(chunk: pq.ColumnChunkMetaData) -> tuple[float, float] | None:
    """Return the chunk's lowest and highest value, which are infinite if they are unknown.

    The result is None if the chunk has no value.
    """
    bounds = chunk.statistics
    if bounds is not None and bounds.null_count == chunk.num_values:
        return None
    return (int(bounds.min_raw), int(bounds.max_raw)) if bounds is not None and bounds.has_min_max else (-inf, inf)


def _limits(column: pq.ColumnSchema) -> tuple[float, int] | None:
    """Return the lowest value that Spark certainly reads right without `SPARK_VERSION_KEY`, and the length of a day.

    Both are in the column's unit: days, milliseconds, microseconds or nanoseconds. The value is infinity for INT96,
    because Spark may misread any INT96 value. None: the column has neither dates nor times.
    """
    if column.physical_type == "INT96":
        return inf, 1
    kind = orjson.loads(column.logical_type.to_json())
    if kind["Type"] == "Date":
        return _FIRST_DAY, 1
    if kind["Type"] == "Timestamp":
        ticks = _TICKS[kind["timeUnit"]]
        return _FIRST_SECOND * ticks if kind["isAdjustedToUTC"] else -inf, 86_400 * ticks
    return None
