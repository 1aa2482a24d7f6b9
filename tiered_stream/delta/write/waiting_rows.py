"""Rows of one table that wait in a task's memory until there are enough rows to write.

The rows are divided by day only when they are removed, so that one sort divides the rows of all days. The days with the
most rows are removed first, and days with few rows wait for more rows. So a day gets few large files, instead of a
small file each time that memory is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered_stream.formats.rows.kafka_columns import TIMESTAMP, kafka_column
from tiered_stream.model import TopicPartition

_MICROSECONDS = 86_400_000_000
_EPOCH = date(1970, 1, 1)
_FIRST, _LAST = (date.min - _EPOCH).days, (date.max - _EPOCH).days
SEVERAL_DAYS = 4
"""Factor by which the size of a row group is multiplied if the waiting rows are of several days.

So each day gets few large files.
"""
NULL_DAY = "__HIVE_DEFAULT_PARTITION__"
"""Value in the name of the partition folder for rows without a day, as Hive and Spark write it."""


def spark_day() -> str:
    """Return the Spark SQL expression for the UTC day of the column `timestamp`; null outside the years 1 to 9999."""
    seconds = "unix_seconds(timestamp)"
    return (
        f"CASE WHEN {seconds} BETWEEN {_FIRST * 86_400} AND {(_LAST + 1) * 86_400 - 1} "
        f"THEN date_from_unix_date(CAST(floor({seconds} / 86400) AS INT)) END"
    )


def day_numbers(batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """Return each row's UTC day as days since the epoch.

    If a row's timestamp is outside the years 1 to 9999, the row has no day. Its number then stands for 10000-01-01.
    """
    column = kafka_column(batch, TIMESTAMP)
    # The buffer is read directly, because pyarrow's conversion to numpy imports pandas.
    days = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)] // _MICROSECONDS
    return np.where((days < _FIRST) | (days > _LAST), _LAST + 1, days).astype(np.int32)


def day_dates(batch: pa.RecordBatch) -> pa.Array:
    """Return each row's UTC day as an Arrow date; null if the timestamp is outside the years 1 to 9999."""
    days = day_numbers(batch)
    return pa.array(days, mask=days > _LAST).cast(pa.date32())


def day_text(day: int) -> str | None:
    """Return a number from `day_numbers` as ISO text such as `2026-11-21`; None if the number stands for no day."""
    return None if day > _LAST else (_EPOCH + timedelta(day)).isoformat()


_Numbers = npt.NDArray[np.intp]
PartitionRows = tuple[TopicPartition, pa.RecordBatch]
"""A Kafka partition, and at least one row from it, in offset order."""


@dataclass(frozen=True, slots=True)
class DayRows:
    """Rows of one UTC day, with the partitions that they are from.

    `day` is the day as ISO text; None: the rows have no day, or the table is not partitioned by day.
    """

    day: str | None
    batches: list[PartitionRows]


class WaitingRows:
    """Rows of one task that wait to be written to one table.

    `by_day` is true if the table is partitioned by day.
    """

    def __init__(self, *, by_day: bool) -> None:
        self._by_day = by_day
        self._batches: list[PartitionRows] = []
        self._days: list[npt.NDArray[np.int32]] = []
        self.bytes = 0
        """Bytes of Arrow memory of the waiting rows."""

    def add(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Add rows of one partition: at least one row, in offset order."""
        self._batches.append((partition, batch))
        if self._by_day:
            self._days.append(day_numbers(batch))
        self.bytes += batch.nbytes

    def has_several_days(self) -> bool:
        """Return whether the waiting rows are of more than one day; false if the table is not partitioned by day."""
        return bool(self._days) and min(map(np.min, self._days)) != max(map(np.max, self._days))

    def overflow(self, row_group_bytes: int) -> list[DayRows]:
        """Remove and return the rows that must be written now; the list is empty if there is room for more rows.

        `row_group_bytes` is the size of a row group of the table's files.
        """
        limit = row_group_bytes * (SEVERAL_DAYS if self.has_several_days() else 1)
        return self.take(keep=limit // 2) if self.bytes >= limit else []

    def take(self, keep: int = 0) -> list[DayRows]:
        """Remove and return rows by day, the days with the most rows first, until at most `keep` bytes of rows wait.

        All rows of a day are removed together. If all waiting rows are of one day, all are removed whatever `keep` is.
        """
        taken: list[DayRows] = []
        if self.has_several_days():
            while self.bytes > keep:
                taken += self._take_largest(keep)
        elif self._batches:
            taken = [DayRows(day_text(int(self._days[0][0])) if self._by_day else None, self._batches)]
            self._hold([])
        return taken

    def _take_largest(self, keep: int) -> list[DayRows]:
        """Remove and return the days with the most rows: at least one day, and enough days to leave about `keep` bytes.

        The number of days is computed as if all rows had the same size.
        """
        days, day_of_row, counts = np.unique(np.concatenate(self._days), return_inverse=True, return_counts=True)
        largest_first = np.argsort(-counts, kind="stable")
        rank = np.empty_like(largest_first)
        rank[largest_first] = np.arange(len(days))
        ends = np.cumsum(counts[largest_first])
        last = int(np.searchsorted(ends, ends[-1] * (1 - keep / self.bytes)))
        rank_of_row = rank[day_of_row]
        order = np.argsort(rank_of_row, kind="stable")
        chosen, left = order[: ends[last]], np.sort(order[ends[last] :])
        rows = _AllRows(self._batches)
        taken = [DayRows(day_text(int(days[at])), []) for at in largest_first[: last + 1]]
        for at, batch in rows.batches(chosen, rank_of_row[chosen]):
            taken[at].batches.append(batch)
        self._hold([batch for _, batch in rows.batches(left, np.zeros_like(left))])
        return taken

    def _hold(self, batches: list[PartitionRows]) -> None:
        self._batches, self._days, self.bytes = [], [], 0
        for partition, batch in batches:
            self.add(partition, batch)


class _AllRows:
    """All waiting rows as one Arrow batch, with the partition of each row."""

    def __init__(self, batches: list[PartitionRows]) -> None:
        self._batch = pa.concat_batches([batch for _, batch in batches])
        self._partitions = list(dict.fromkeys(partition for partition, _ in batches))
        numbers = {partition: number for number, partition in enumerate(self._partitions)}
        lengths = [batch.num_rows for _, batch in batches]
        self._partition_of_row = np.repeat([numbers[partition] for partition, _ in batches], lengths)

    def batches(self, rows: _Numbers, day: _Numbers) -> Iterator[tuple[int, PartitionRows]]:
        """Yield the rows with the indexes `rows`, in this order, in batches that each have one day and one partition.

        `day` has the number of a day for each index in `rows`. Each item is a pair: the number of the batch's day, and
        the batch with its partition. The rows are copied once, because slices of the original batch would keep the
        memory of rows that were written long ago.
        """
        copy = self._batch.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))
        partition = self._partition_of_row[rows]
        changes = np.flatnonzero((np.diff(day) != 0) | (np.diff(partition) != 0)) + 1
        starts = [0, *changes.tolist()] if len(rows) else []
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=False):
            yield int(day[start]), (self._partitions[partition[start]], copy.slice(start, end - start))
