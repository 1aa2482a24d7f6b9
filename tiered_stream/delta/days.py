"""The day column: the UTC day of `timestamp`, the same in both lanes whatever the session's time zone is.

Producers set timestamps as they like: outside the years 1 to 9999, the range of Delta's partition values, it is null.
"""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered_stream.formats.kafka_columns import TIMESTAMP, kafka_column

_MICROSECONDS = 86_400_000_000
_EPOCH = date(1970, 1, 1)
_FIRST, _LAST = (date.min - _EPOCH).days, (date.max - _EPOCH).days
NULL_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a day, as Hive and Spark name it."""


def spark_day() -> str:
    """The Spark SQL expression of a record's day."""
    seconds = "unix_seconds(timestamp)"
    return (
        f"CASE WHEN {seconds} BETWEEN {_FIRST * 86_400} AND {(_LAST + 1) * 86_400 - 1} "
        f"THEN date_from_unix_date(CAST(floor({seconds} / 86400) AS INT)) END"
    )


def day_numbers(batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The day of each row, counted from the epoch."""
    column = kafka_column(batch, TIMESTAMP)
    # As it lies in memory: pyarrow's own way to numpy imports pandas.
    days = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)] // _MICROSECONDS
    return np.where((days < _FIRST) | (days > _LAST), _LAST + 1, days).astype(np.int32)


def day_dates(batch: pa.RecordBatch) -> pa.Array:
    """The day of each row, as a date."""
    days = day_numbers(batch)
    return pa.array(days, mask=days > _LAST).cast(pa.date32())


def day_text(day: int) -> str | None:
    """`2026-11-21`; None for rows without a day."""
    return None if day > _LAST else (_EPOCH + timedelta(day)).isoformat()
