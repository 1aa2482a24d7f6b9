"""Search for dates and times in Parquet files that need care when deltalake rewrites the files.

1. Early values: dates before 1582-10-15, and timestamps before 1900. Spark reads these values right only if the file's
   footer has the key `org.apache.spark.version`.
2. Values outside of the years 1 to 9999. Some readers of Delta's log cannot parse them as bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

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
_DAYS = -719_162, 2_932_897
"""First day of the year 1, and of the year 10000, in days since the epoch."""
_TICKS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


@dataclass(frozen=True, slots=True)
class OddTimes:
    """Kinds of odd dates and times that Parquet files may have.

    `need_version_key`: Spark might misread early values if the files were rewritten without `SPARK_VERSION_KEY`. A file
    that does not have the key now is ignored. `beyond_years`: a value may be outside of the years 1 to 9999.
    """

    need_version_key: bool = False
    beyond_years: bool = False

    def __or__(self, other: OddTimes) -> OddTimes:
        return OddTimes(
            self.need_version_key or other.need_version_key, self.beyond_years or other.beyond_years
        )  # fmt: skip


def find_odd_times(folder: fs.FileSystem, paths: Iterable[str]) -> OddTimes:
    """Return the odd dates and times of the Parquet files with these paths in `folder`, by the files' footers.

    Raises OSError if a file cannot be read.
    """
    found = OddTimes()
    for path in paths:
        found |= _odd_times(pq.read_metadata(path, filesystem=folder))
    return found


def _odd_times(file: pq.FileMetaData) -> OddTimes:
    has_key = SPARK_VERSION_KEY.encode() in (file.metadata or {})
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    found = OddTimes()
    for at in range(file.num_columns):
        if (limits := _limits(file.schema.column(at))) is not None:
            first_sure, ticks_of_day = limits
            for lowest, highest in filter(None, (_bounds(group.column(at)) for group in groups)):
                beyond = lowest < _DAYS[0] * ticks_of_day or highest >= _DAYS[1] * ticks_of_day
                found |= OddTimes(has_key and lowest < first_sure, beyond)
    return found


def _bounds(chunk: pq.ColumnChunkMetaData) -> tuple[float, float] | None:
    """Return the chunk's lowest and highest value, which are infinite if they are unknown; None: it has no value."""
    bounds = chunk.statistics
    if bounds is not None and bounds.null_count == chunk.num_values:
        return None
    return (int(bounds.min_raw), int(bounds.max_raw)) if bounds is not None and bounds.has_min_max else (-inf, inf)


def _limits(column: pq.ColumnSchema) -> tuple[float, int] | None:
    """Return the lowest value that Spark certainly reads right without the key, and the ticks of a day.

    Both are in the column's unit: days since the epoch, or milliseconds, microseconds or nanoseconds. The value is
    infinity for INT96, because Spark may misread any INT96 value. None: the column has neither dates nor times.
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
