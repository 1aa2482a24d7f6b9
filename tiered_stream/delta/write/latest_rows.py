"""Rows of one task that wait to be staged for a table of the latest state: only the last row of each key.

The rows of a partition are reduced in memory, again and again, so that memory holds few rows that are not the last ones
of their keys. If the last rows alone fill the memory, they are written, and a later file may have newer rows of their
keys. So Spark reduces the rows of all files of a micro-batch once more (`commit/merge.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.delta.write.waiting_rows import DayRows, PartitionRows
from tiered_stream.formats.rows.change_records import is_deleted, named_column
from tiered_stream.formats.rows.kafka_columns import OFFSET, kafka_column, table_columns
from tiered_stream.model import TopicPartition
from tiered_stream.records.arrow import repeated_text

STAGED_FOLDER = "staged-upserts"
"""Folder of staged files, within the folder of their table.

No commit ever names these files. So readers of the table do not see them, and VACUUM removes files that a failed
micro-batch has left.
"""
PARTITION, POSITION, DELETES = "__staged_partition", "__staged_offset", "__staged_delete"
"""Columns that a staged file has after the table's columns: Kafka's partition, the offset, and whether a row deletes.

`PARTITION` has the topic and the number of the partition in one text.
"""
STAGED = pa.schema([(PARTITION, pa.string()), (POSITION, pa.int64()), (DELETES, pa.bool_())])
MAX_KEPT_BYTES = 64 << 20
"""Bytes of last rows that stay in memory; more rows are written."""
_MIN_NEW_BYTES = 16 << 20
"""Bytes of new rows after which the rows in memory are reduced; at least as many as were kept by the last time."""


class LatestRows:
    """Rows of one task that wait to be staged for one table with the key columns `keys`.

    The last row of a key has the largest value of the column `order_by`, or the largest offset if it is None. Rows of
    the same value come by their offsets.
    """

    def __init__(self, keys: Sequence[str], order_by: str | None) -> None:
        self._keys, self._order_by = keys, order_by
        self._partition: TopicPartition | None = None
        self._batches: list[pa.RecordBatch] = []
        self._reduced_bytes = 0
        self._finished: list[PartitionRows] = []
        self._finished_bytes = 0
        self._waiting_bytes = 0

    @property
    def bytes(self) -> int:
        """Bytes of Arrow memory of the waiting rows."""
        return self._finished_bytes + self._waiting_bytes

    def add(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Add rows of one partition: at least one row, in offset order."""
        if partition != self._partition:
            self._finish()
            self._partition = partition
        self._batches.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes - self._reduced_bytes >= max(_MIN_NEW_BYTES, self._reduced_bytes):
            self._reduce()

    def overflow(self, row_group_bytes: int) -> list[DayRows]:
        """Remove and return the rows that must be written now; the list is empty if there is room for more rows.

        `row_group_bytes` is the size of a row group of the table's files.
        """
        if self._reduced_bytes >= MAX_KEPT_BYTES:
            self._finish()
        return self._take_finished() if self._finished_bytes >= row_group_bytes else []

    def take(self) -> list[DayRows]:
        """Remove and return all waiting rows."""
        self._finish()
        return self._take_finished()

    def _take_finished(self) -> list[DayRows]:
        taken, self._finished, self._finished_bytes = self._finished, [], 0
        return [DayRows(None, taken)] if taken else []

    def _finish(self) -> None:
        """Reduce the rows of the partition that got rows until now, and count them as finished."""
        if self._partition is None or not self._batches:
            return
        self._reduce()
        rows = [staged(self._partition, batch) for batch in self._batches if batch.num_rows]
        self._finished += ((self._partition, batch) for batch in rows)
        self._finished_bytes += sum(batch.nbytes for batch in rows)
        self._batches, self._reduced_bytes, self._waiting_bytes = [], 0, 0

    def _reduce(self) -> None:
        last = _last_of_keys(self._batches, self._keys, self._order_by)
        kept, at = [], 0
        for batch in self._batches:
            mask = last[at : at + batch.num_rows]
            at += batch.num_rows
            kept.append(batch if mask.all() else batch.filter(pa.array(mask)))
        self._batches = [batch for batch in kept if batch.num_rows]
        self._reduced_bytes = self._waiting_bytes = sum(batch.nbytes for batch in self._batches)


def staged(partition: TopicPartition, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of one partition with the columns `STAGED` after the table's columns, and then the hidden columns."""
    shown = len(table_columns(rows.schema))
    name = repeated_text(f"{partition.topic}/{partition.partition}", rows.num_rows)
    marks = [name, kafka_column(rows, OFFSET), is_deleted(rows)]
    fields = [*list(rows.schema)[:shown], *STAGED, *list(rows.schema)[shown:]]
    columns = [*rows.columns[:shown], *marks, *rows.columns[shown:]]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def without_staged(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the columns `STAGED`, which only staged files have."""
    return pa.schema([field for field in schema if field.name not in STAGED.names], schema.metadata)


def _last_of_keys(
    batches: Sequence[pa.RecordBatch], keys: Sequence[str], order_by: str | None
) -> npt.NDArray[np.bool_]:
    """Return for each row of the batches, one after the other, whether it is the last row of its key."""
    schema = batches[0].schema
    table = pa.Table.from_batches([_bare(batch, keys) for batch in batches])
    order = np.arange(len(table), dtype=np.int64)
    if order_by is not None:
        values = pa.chunked_array([batch.column(named_column(schema, order_by) or order_by) for batch in batches])
        # The sort is stable, so rows of one value stay in offset order.
        order = pc.array_sort_indices(values.combine_chunks()).to_numpy().astype(np.int64)
    last = np.zeros(len(table), bool)
    last[_last_in_order(table, order)] = True
    return last


def last_rows(rows: pa.Table, keys: Sequence[str], order_by: str | None) -> pa.Table:
    """Return the last row of each key among staged rows of all tasks, as the SQL of `commit/merge.py` does.

    `rows` have the columns `STAGED`, and the columns `keys` and `order_by` under exactly these names.

    Raises:
        UnorderedKeyError: `order_by` is None, and a key has rows in several partitions.
    """
    bare = rows.select(keys).rename_columns([f"k{number}" for number in range(len(keys))])
    if bare.group_by(bare.column_names, use_threads=False).aggregate([]).num_rows == len(rows):
        return rows
    partitions, names = _numbered_partitions(rows.column(PARTITION))
    if order_by is None and len(names) > 1:
        _check_one_partition(bare, partitions, names)
    sorted_by = [rows.column(POSITION).to_numpy(), partitions]
    if order_by is not None:
        sorted_by.append(pc.rank(rows.column(order_by), tiebreaker="dense").to_numpy())
    return rows.take(np.sort(_last_in_order(bare, np.lexsort(sorted_by))))


class UnorderedKeyError(Exception):
    """A key has rows in two partitions, whose names are `first` and `last`, and no column orders them."""

    def __init__(self, first: str, last: str) -> None:
        super().__init__(f"{first} and {last}")


def _last_in_order(keys: pa.Table, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of each key's last row; `order` has the positions of all rows, the earliest first."""
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    ranks = pa.Array.from_buffers(pa.int64(), len(rank), [None, pa.py_buffer(rank)])
    grouped = keys.append_column("", ranks).group_by(keys.column_names, use_threads=False)
    last: npt.NDArray[np.int64] = order[grouped.aggregate([("", "max")]).column("_max").to_numpy()]
    return last


def _numbered_partitions(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return each row's partition as its number among the sorted names of partitions, and these names."""
    encoded = column.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    numbers = np.empty(len(names), np.int64)
    numbers[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return numbers[encoded.indices.to_numpy()], sorted(names)


def _check_one_partition(keys: pa.Table, partitions: npt.NDArray[np.int64], names: Sequence[str]) -> None:
    grouped = keys.append_column("", pa.array(partitions)).group_by(keys.column_names, use_threads=False)
    bounds = grouped.aggregate([("", "min"), ("", "max")])
    unordered = bounds.filter(pc.not_equal(bounds["_min"], bounds["_max"]))
    if unordered.num_rows:
        raise UnorderedKeyError(names[unordered["_min"][0].as_py()], names[unordered["_max"][0].as_py()])


def _bare(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Return the key columns of the batch under names of their own."""
    columns = [batch.column(named_column(batch.schema, key) or key) for key in keys]
    return pa.RecordBatch.from_arrays(columns, names=[f"k{number}" for number in range(len(keys))])
