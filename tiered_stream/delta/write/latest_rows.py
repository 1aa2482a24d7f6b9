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
PARTITION, POSITION = "__staged_partition", "__staged_offset"
DELETES = "__staged_delete"
"""Columns that a staged file has after the table's columns.

`PARTITION` has the topic and the number of Kafka's partition in one text, and `POSITION` the offset. `DELETES` says
whether the row deletes the row of its key.
"""
STAGED = pa.schema([(PARTITION, pa.string()), (POSITION, pa.int64()), (DELETES, pa.bool_())])
DELETED_AT = "__staged_deleted_at"
"""Column of a key's last row: the largest value of `ingest.orderBy` among the key's deletes that count, or else null.

Without `ingest.orderBy`, it is true if the key has deletes.
"""
_Flags = npt.NDArray[np.bool_]
_Positions = npt.NDArray[np.int64]
MAX_KEPT_BYTES = 64 << 20
"""Bytes of last rows that stay in memory; more rows are written."""
_MIN_NEW_BYTES = 16 << 20
"""Bytes of new rows after which the rows in memory are reduced; at least as many as were kept by the last time."""


class LatestRows:
    """Rows of one task that wait to be staged for one table with the key columns `keys`.

    The last row of a key has the largest value of the column `order_by`, or the largest offset if it is None. Rows of
    the same value come by their offsets. If `keeps_deletes` is true, the last delete of the key that counts is kept,
    too.
    """

    def __init__(self, keys: Sequence[str], order_by: str | None, *, keeps_deletes: bool = False) -> None:
        self._keys, self._order_by, self._keeps_deletes = keys, order_by, keeps_deletes
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
        rows = [staged(self._partition, batch) for batch in self._batches]
        self._finished += ((self._partition, batch) for batch in rows)
        self._finished_bytes += sum(batch.nbytes for batch in rows)
        self._batches, self._reduced_bytes, self._waiting_bytes = [], 0, 0

    def _reduce(self) -> None:
        keep, kept, at = self._kept(), [], 0
        for batch in self._batches:
            flags = keep[at : at + batch.num_rows]
            at += batch.num_rows
            if flags.any():
                kept.append(batch if flags.all() else batch.filter(pa.array(flags)))
        self._batches = kept
        self._reduced_bytes = self._waiting_bytes = sum(batch.nbytes for batch in self._batches)

    def _kept(self) -> _Flags:
        """Return for each row of the batches, one after the other, whether the row is kept."""
        schema = self._batches[0].schema
        keys = pa.Table.from_batches([_bare(batch, self._keys) for batch in self._batches])
        ranks = np.arange(len(keys), dtype=np.int64)
        if self._order_by is not None:
            name = named_column(schema, self._order_by) or self._order_by
            ranks = _dense_ranks(pa.chunked_array([batch.column(name) for batch in self._batches]))
        keep = np.zeros(len(keys), bool)
        keep[_last_in_order(keys, ranks)] = True
        if self._keeps_deletes:
            deletes = np.concatenate([is_deleted(batch).to_numpy(zero_copy_only=False) for batch in self._batches])
            counting = np.flatnonzero(_counting_deletes(keys, ranks, deletes))
            if len(counting):
                keep[counting[_last_in_order(keys.take(counting), ranks[counting])]] = True
        return keep


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


def last_rows(rows: pa.Table, keys: Sequence[str], order_by: str | None) -> pa.Table:
    """Return the last row of each key among staged rows of all tasks, as the SQL of `commit/merge.py` does.

    `rows` have the columns `STAGED`, and the columns `keys` and `order_by` under exactly these names. The result has
    the column `DELETED_AT`, too.

    Raises:
        UnorderedKeyError: `order_by` is None, and a key has rows in several partitions.
    """
    kind = pa.bool_() if order_by is None else rows.schema.field(order_by).type
    bare = rows.select(keys).rename_columns([f"k{number}" for number in range(len(keys))])
    if bare.group_by(bare.column_names, use_threads=False).aggregate([]).num_rows == len(rows):
        return rows.append_column(DELETED_AT, pa.nulls(len(rows), kind))
    partitions, names = _numbered_partitions(rows.column(PARTITION))
    if order_by is None and len(names) > 1:
        _check_one_partition(bare, partitions, names)
    arrival = np.lexsort([rows.column(POSITION).to_numpy(), partitions])
    ranks = np.arange(len(rows)) if order_by is None else _dense_ranks(rows.column(order_by))[arrival]
    bare, deletes = bare.take(arrival), rows.column(DELETES).to_numpy()[arrival]
    last, deleted = _last_and_largest(bare, ranks, np.where(_counting_deletes(bare, ranks, deletes), ranks, -1))
    place_of_rank = np.zeros(len(rows), np.int64)
    place_of_rank[ranks] = arrival
    values = pa.chunked_array([pa.repeat(True, len(rows))]) if order_by is None else rows.column(order_by)
    deleted_at = values.take(pa.array(place_of_rank[deleted], mask=deleted < 0))
    in_order = np.argsort(arrival[last])
    found = rows.take(arrival[last][in_order])
    return found.append_column(DELETED_AT, deleted_at.take(in_order))


def _dense_ranks(values: pa.ChunkedArray) -> _Positions:
    """Return the rank of each value among the distinct values, from 0 on."""
    ranks: _Positions = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64) - 1
    return ranks


class UnorderedKeyError(Exception):
    """A key has rows in the two partitions that the text names, and no column orders them."""


def _last_in_order(keys: pa.Table, ranks: _Positions) -> _Positions:
    """Return the position of each key's last row: the later row among the rows of the largest rank.

    `keys` and `ranks` are of all rows, in the order of their offsets.
    """
    return _last_and_largest(keys, ranks, ranks)[0]


def _last_and_largest(keys: pa.Table, ranks: _Positions, values: _Positions) -> tuple[_Positions, _Positions]:
    """Return the position of each key's last row, as `_last_in_order`, and the largest of `values` of its rows."""
    order = np.argsort(ranks, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    columns = {"place": place, "value": values}
    for name, column in columns.items():
        numbers = np.ascontiguousarray(column, np.int64)
        keys = keys.append_column(name, pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))
    grouped = keys.group_by(keys.column_names[: -len(columns)], use_threads=False)
    found = grouped.aggregate([(name, "max") for name in columns])
    return order[found.column("place_max").to_numpy()], found.column("value_max").to_numpy()


def _counting_deletes(keys: pa.Table, ranks: _Positions, deletes: _Flags) -> _Flags:
    """Return for each row whether it is a delete that counts: no row of its key before it has a larger rank.

    `keys`, `ranks` and `deletes` are of all rows, in the order of their offsets.
    """
    if not deletes.any():
        return deletes
    positions = pa.Array.from_buffers(pa.int64(), len(keys), [None, pa.py_buffer(np.arange(len(keys), dtype=np.int64))])
    grouped = keys.append_column("", positions).group_by(keys.column_names, use_threads=False)
    lists = grouped.aggregate([("", "list")]).column("_list").combine_chunks()
    by_key = lists.flatten().to_numpy()
    # Each key has numbers above all numbers of the keys before it, so that one running maximum is a maximum by key.
    base = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy()) * (len(keys) + 1)
    of_rows = base + ranks[by_key] + 1
    highest = np.maximum.accumulate(np.where(deletes[by_key], base, of_rows))
    counting = np.zeros(len(keys), bool)
    counting[by_key] = deletes[by_key] & (of_rows >= highest)
    return counting


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
        lowest, highest = (names[unordered[each][0].as_py()] for each in ("_min", "_max"))
        raise UnorderedKeyError(f"{lowest} and {highest}")


def _bare(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Return the key columns of the batch under names of their own."""
    columns = [batch.column(named_column(batch.schema, key) or key) for key in keys]
    return pa.RecordBatch.from_arrays(columns, names=[f"k{number}" for number in range(len(keys))])
