"""Search for early values in Parquet files: dates before 1582-10-15, and timestamps before 1900.

Spark reads these values right only if the file's footer has the key `org.apache.spark.version`.
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
"""1900-01-01T00:00:00Z in seconds since the epoch; before 1900, time zones had odd offsets.

Spark: `RebaseDateTime.lastSwitchGregorianTs`.
"""
_TICKS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def need_version_key(folder: fs.FileSystem, paths: Iterable[str]) -> bool:
    """Return whether Spark might misread early dates or times if these Parquet files were rewritten without the key.

    The key is `SPARK_VERSION_KEY` in a file's footer. A file that does not have the key now is ignored. `paths` are
    paths in the file system `folder`. Raises OSError if a file cannot be read.
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
    """Return the lowest value of the column that Spark certainly reads right without `SPARK_VERSION_KEY`.

    The value is in the column's unit: days since the epoch, or milliseconds, microseconds or nanoseconds. It is
    infinity for INT96, because Spark may misread any INT96 value. None: Spark reads all values right, because the
    column has neither dates nor instants.
    """
    if column.physical_type == "INT96":
        return float("inf")
    kind = orjson.loads(column.logical_type.to_json())
    if kind["Type"] == "Date":
        return _FIRST_DAY
    if kind["Type"] == "Timestamp" and kind["isAdjustedToUTC"]:
        return _FIRST_SECOND * _TICKS[kind["timeUnit"]]
    return None
