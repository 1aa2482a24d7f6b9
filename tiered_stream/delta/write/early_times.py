"""Early dates and times in Parquet files, which Spark reads right only if the footer has Spark's version key.

See `parquet_properties` for the key.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson
import pyarrow.parquet as pq
from pyarrow import fs

from tiered_stream.delta.write.parquet_properties import SPARK_VERSION_KEY

_FIRST_DAY = -141_427
"""1582-10-15 in days since the epoch (Spark: `RebaseDateTime.lastSwitchGregorianDay`)."""
_FIRST_SECOND = -2_208_988_800
"""1900-01-01T00:00:00Z in seconds since the epoch; time zones had odd offsets before it.

Spark: `RebaseDateTime.lastSwitchGregorianTs`.
"""
_TICKS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def need_version_key(folder: fs.FileSystem, paths: Iterable[str]) -> bool:
    """Return whether Spark might misread rows of these Parquet files if they were rewritten without the version key.

    `paths` are paths in the file system `folder`. Files that do not have the key themselves are ignored. Raises OSError
    if a file cannot be read.
    """
    return any(_needs_key(pq.read_metadata(path, filesystem=folder)) for path in paths)


def _needs_key(file: pq.FileMetaData) -> bool:
    if SPARK_VERSION_KEY.encode() not in (file.metadata or {}):
        return False
    groups = (file.row_group(number) for number in range(file.num_row_groups))
    columns = ((file.schema.column(at), group.column(at)) for group in groups for at in range(file.num_columns))
    return any(_may_be_early(column, chunk) for column, chunk in columns)


def _may_be_early(column: pq.ColumnSchema, chunk: pq.ColumnChunkMetaData) -> bool:
    first = _first_that_is_sure(column)
    if first is None:
        return False
    bounds = chunk.statistics
    if bounds is not None and bounds.null_count == chunk.num_values:
        return False
    return bounds is None or not bounds.has_min_max or int(bounds.min_raw) < first


def _first_that_is_sure(column: pq.ColumnSchema) -> float | None:
    """Return the first value from which Spark's old and new calendars agree, in the unit of the column.

    It is infinity for INT96, because no value is sure. None: all values are sure, because the column has no dates or
    instants (local times are sure).
    """
    if column.physical_type == "INT96":
        return float("inf")
    kind = orjson.loads(column.logical_type.to_json())
    if kind["Type"] == "Date":
        return _FIRST_DAY
    if kind["Type"] == "Timestamp" and kind["isAdjustedToUTC"]:
        return _FIRST_SECOND * _TICKS[kind["timeUnit"]]
    return None
