"""The day column: the UTC day of `timestamp`, the same in both lanes and in every session time zone.

The day is null if the timestamp, which producers can set freely, is outside the years 1 to 9999 (the range of Delta's
partition values).
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
"""Partition value in the folder name of rows without a day, as Hive and Spark write it."""


def spark_day() -> str:
    """Return the Spark SQL expression for a record's UTC day, null outside the years 1 to 9999."""
    seconds = "unix_seconds(timestamp)"
    return (
        f"CASE WHEN {seconds} BETWEEN {_FIRST * 86_400} AND {(_LAST + 1) * 86_400 - 1} "
        f"THEN date_from_unix_date(CAST(floor({seconds} / 86400) AS INT)) END"
    )


def day_numbers(batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """Return each row's UTC day as days since the epoch; a row without a day gets a number above year 9999."""
    column = kafka_column(batch, TIMESTAMP)
    # The buffer is read directly, because pyarrow's conversion to numpy imports pandas.
    days = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)] // _MICROSECONDS
    return np.where((days < _FIRST) | (days > _LAST), _LAST + 1, days).astype(np.int32)


def day_dates(batch: pa.RecordBatch) -> pa.Array:
    """Return each row's UTC day as an Arrow date, null for a row without a day."""
    days = day_numbers(batch)
    return pa.array(days, mask=days > _LAST).cast(pa.date32())


def day_text(day: int) -> str | None:
    """Return a day number as ISO text such as `2026-11-21`; None for the number that stands for no day."""
    return None if day > _LAST else (_EPOCH + timedelta(day)).isoformat()
