"""Rows of one task that wait to be written to files for a MERGE: only the last row of each key.

The table has `ingest.mode=upsert`. The rows of a partition in memory are reduced to the last row of each key, again and
again. If these last rows fill the memory, they are written, and a later file can have newer rows of their keys. So the
rows of all files of a micro-batch are reduced once more before the MERGE (`commit/merge.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.delta.write.waiting_rows import DayRows, WaitingRows
from tiered_stream.formats.rows.change_records import (
    NAMES,
    is_deleted,
    named_column,
    unavailable_flags,
    unavailable_names,
)
from tiered_stream.formats.rows.kafka_columns import OFFSET, kafka_column, table_columns
from tiered_stream.model import TopicPartition
from tiered_stream.records.arrow import repeated_text

STAGED_FOLDER = "staged-upserts"
"""Folder, within a table's folder, of staged files: files of new rows that a MERGE reads.

No commit ever names staged files. So readers of the table do not see them, and VACUUM removes files that a failed
micro-batch has left.
"""
PARTITION, POSITION = "__staged_partition", "__staged_offset"
DELETES, PLACEHOLDERS = "__staged_delete", "__staged_placeholders"
"""Columns that a staged file (a file of new rows that a MERGE reads) has after the table's columns.

`PARTITION` has the topic and the number of Kafka's partition in one text, and `POSITION` the offset. `DELETES` says
whether the row deletes the row of its key. `PLACEHOLDERS` has the names of the columns in which the row has a
placeholder for a value that the database did not send.
"""
STAGED = pa.schema([(PARTITION, pa.string()), (POSITION, pa.int64()), (DELETES, pa.bool_()), (PLACEHOLDERS, NAMES)])
DELETED_AT = "__staged_deleted_at"
"""Column of a key's last row: the largest value of `ingest.orderBy` among the key's deletes that count.

A delete counts if no earlier row of its key, other than deletes, has a larger value. The column is null if there is no
delete that counts. Without `ingest.orderBy`, the column is true if the key has deletes.
"""
_KNOWN_AT = "__staged_known_at_"
_Flags = npt.NDArray[np.bool_]
_Positions = npt.NDArray[np.int64]
MAX_KEPT_BYTES = 64 << 20
"""Size in bytes of the last rows of one partition's keys at which these rows no longer wait for newer rows."""
_MIN_NEW_BYTES = 16 << 20
"""Minimum number of bytes of new rows after which the rows in memory are reduced to the last row of each key again.

If the previous reduction kept more bytes than this, that larger number of new bytes is needed.
"""


class LatestRows:
    """Rows of one task that wait to be written to files for a MERGE into one table with the key columns `keys`.

    Only the last row of each key is kept. The last row has the largest value of the column `order_by`. Among equal
    values, or if `order_by` is None, it has the largest offset. If `keeps_deletes` is true, the key's last delete that
    counts (`DELETED_AT`) is kept, too. For each column with placeholders, the key's last delete or row without a
    placeholder there is kept, too.
    """

    def __init__(self, keys: Sequence[str], order_by: str | None, *, keeps_deletes: bool = False) -> None:
        self._keys, self._order_by, self._keeps_deletes = keys, order_by, keeps_deletes
        self._partition: TopicPartition | None = None
        self._batches: list[pa.RecordBatch] = []
        self._reduced_bytes = 0
        self._waiting_bytes = 0
        self._finished = WaitingRows(by_day=False)
        """Last rows of keys that are ready to be written, with the columns `STAGED`."""

    @property
    def bytes(self) -> int:
        """Bytes of Arrow memory of the waiting rows."""
        return self._finished.bytes + self._waiting_bytes

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
        return self._finished.overflow(row_group_bytes)

    def take(self) -> list[DayRows]:
        """Remove and return all waiting rows."""
        self._finish()
        return self._finished.take()

    def _finish(self) -> None:
        """Reduce the current partition's rows to the last row of each key, and make these rows ready to be written."""
        if self._partition is None or not self._batches:
            return
        self._reduce()
        for batch in self._batches:
            self._finished.add(self._partition, staged(self._partition, batch))
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
        """Return a flag for each row of all batches, in the order of the batches: true if the row is kept."""
        schema = self._batches[0].schema
        keys = pa.Table.from_batches([_bare(batch, self._keys) for batch in self._batches])
        ranks = np.arange(len(keys), dtype=np.int64)
        if self._order_by is not None:
            name = named_column(schema, self._order_by) or self._order_by
            ranks = _dense_ranks(pa.chunked_array([batch.column(name) for batch in self._batches]))
        kinds = [np.ones(len(keys), bool)]
        without = unavailable_flags(pa.chunked_array([unavailable_names(batch) for batch in self._batches]))
        if self._keeps_deletes or without:
            deletes = np.concatenate([is_deleted(batch).to_numpy(zero_copy_only=False) for batch in self._batches])
            kinds += [_counting_deletes(keys, ranks, deletes)] if self._keeps_deletes else []
            kinds += [deletes | ~flags for flags in without.values()]
        keep = np.zeros(len(keys), bool)
        for last in _last_in_order(keys, ranks, kinds):
            keep[last[last >= 0]] = True
        return keep


def staged(partition: TopicPartition, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of one partition with the columns `STAGED` added after the table's columns.

    Hidden columns, which are not written to files, come last.
    """
    shown = len(table_columns(rows.schema))
    name = repeated_text(f"{partition.topic}/{partition.partition}", rows.num_rows)
    marks = [name, kafka_column(rows, OFFSET), is_deleted(rows), unavailable_names(rows)]
    fields = [*list(rows.schema)[:shown], *STAGED, *list(rows.schema)[shown:]]
    columns = [*rows.columns[:shown], *marks, *rows.columns[shown:]]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def placeholder_columns(rows: pa.RecordBatch) -> set[str]:
    """Return the names, in lower case, of the columns in which at least one of the rows has a placeholder.

    A placeholder stands for a value that the database did not send (`ingest.unavailableValue`).
    """
    return set(pc.unique(unavailable_names(rows).flatten()).to_pylist())


def known_at(columns: Sequence[str], placeholders: Collection[str]) -> dict[str, str]:
    """Return the name of a helper column of `last_rows` for each of the table's `columns` that is in `placeholders`.

    `placeholders` are names of columns in lower case. A row knows the value of such a column if the row is a delete, or
    has no placeholder in the column. The helper column has the value of `ingest.orderBy` in the key's last row that
    knows the value (true without `ingest.orderBy`). It is null if no row of the key knows the value.
    """
    return {name: f"{_KNOWN_AT}{at}" for at, name in enumerate(columns) if name.lower() in placeholders}


def without_staged(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the columns `STAGED`, which only staged files have."""
    return pa.schema([field for field in schema if field.name not in STAGED.names], schema.metadata)


def last_rows(
    rows: pa.Table,
    keys: Sequence[str],
    order_by: str | None,
    known: Mapping[str, str] = MappingProxyType({}),
    not_null: Collection[str] = (),
) -> pa.Table:
    """Return the last row of each key among rows from staged files of all tasks, like the SQL in `commit/key_order.py`.

    `rows` have the columns `STAGED`, and the columns `keys` and `order_by` under exactly these names. `known` is the
    result of `known_at`. The returned rows also have the column `DELETED_AT`, and the helper columns in `known`. The
    key's last known value replaces each placeholder. If no value is known, null replaces it, except in the columns
    `not_null`, which keep the placeholder.

    Raises:
        UnorderedKeyError: `order_by` is None, and a key has rows in several partitions.
    """
    deletes, without = rows.column(DELETES).to_numpy(), unavailable_flags(rows.column(PLACEHOLDERS))
    knows = {name: deletes | ~without.get(name.lower(), np.zeros(len(rows), bool)) for name in known}
    last, deleted, knowing = _last_places(rows, keys, order_by, deletes, knows)
    order = pa.chunked_array([pa.repeat(True, len(rows))]) if order_by is None else rows.column(order_by)
    found = rows if len(last) == len(rows) else rows.take(last)
    found = found.append_column(DELETED_AT, order.take(pa.array(deleted, mask=deleted < 0)))
    for name, column in known.items():
        at = knowing[name]
        found = found.append_column(column, order.take(pa.array(at, mask=at < 0)))
        is_unknown = (at < 0) | deletes[at]
        values = pa.array(np.where(is_unknown, last, at), mask=None if name in not_null else is_unknown)
        found = found.set_column(found.schema.get_field_index(name), name, rows.column(name).take(values))
    return found


def _last_places(
    rows: pa.Table, keys: Sequence[str], order_by: str | None, deletes: _Flags, knows: Mapping[str, _Flags]
) -> tuple[_Positions, _Positions, dict[str, _Positions]]:
    """Find the rows of each key that decide its values, and return arrays of their positions in `rows`.

    Each array has one item for each key, in the order of the keys' last rows.

    Args:
        deletes: a flag for each row, true for a delete.
        knows: by column name, a flag for each row, true if the row is a delete or has no placeholder in the column.

    Returns:
        The positions of the keys' last rows, of the deletes whose value `DELETED_AT` gets, and, by column name, of the
            last rows with the flag in `knows`. The position -1 means that the key has no such row.
    """
    bare = rows.select(keys).rename_columns([f"k{number}" for number in range(len(keys))])
    itself = np.arange(len(rows))
    if bare.group_by(bare.column_names, use_threads=False).aggregate([]).num_rows == len(rows):
        return itself, np.full(len(rows), -1), {name: np.where(flags, itself, -1) for name, flags in knows.items()}
    partitions, names = _numbered_partitions(rows.column(PARTITION))
    if order_by is None and len(names) > 1:
        _check_one_partition(bare, partitions, names)
    arrival = np.lexsort([rows.column(POSITION).to_numpy(), partitions])
    ranks = itself if order_by is None else _dense_ranks(rows.column(order_by))[arrival]
    bare = bare.take(arrival)
    kinds = [np.ones(len(rows), bool), _counting_deletes(bare, ranks, deletes[arrival])]
    found = _last_in_order(bare, ranks, [*kinds, *(flags[arrival] for flags in knows.values())])
    in_order = np.argsort(arrival[found[0]])
    of_row = np.append(arrival, -1)  # so that -1 stays -1
    last, deleted, *knowing = (of_row[each][in_order] for each in found)
    return last, deleted, dict(zip(knows, knowing, strict=True))


def _dense_ranks(values: pa.ChunkedArray) -> _Positions:
    """Return the rank of each value among the distinct values, from 0 on."""
    ranks: _Positions = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64) - 1
    return ranks


class UnorderedKeyError(Exception):
    """Error for a key with rows in two Kafka partitions, which the message names, if no column orders these rows."""


def _last_in_order(keys: pa.Table, ranks: _Positions, kinds: Sequence[_Flags]) -> list[_Positions]:
    """Return, for each array of flags in `kinds`, the position of each key's last row with the flag; -1: there is none.

    The last row of a key has the largest rank, and among equal ranks the largest position. `keys`, `ranks` and the
    arrays of flags have one item for each row, in the order of offsets. The keys have the same order in all results.
    """
    order = np.append(np.argsort(ranks, kind="stable"), -1)  # so that the place -1 has the position -1
    place = np.empty(len(keys), np.int64)
    place[order[:-1]] = np.arange(len(keys))
    names = [f"kind {number}" for number in range(len(kinds))]
    grouped = keys
    for name, flags in zip(names, kinds, strict=True):
        buffers = [None, pa.py_buffer(np.where(flags, place, -1))]
        grouped = grouped.append_column(name, pa.Array.from_buffers(pa.int64(), len(keys), buffers))
    by_key = grouped.group_by(keys.column_names, use_threads=False).aggregate([(name, "max") for name in names])
    return [order[by_key.column(f"{name}_max").to_numpy()] for name in names]


def _counting_deletes(keys: pa.Table, ranks: _Positions, deletes: _Flags) -> _Flags:
    """Return for each row whether it is a delete that counts: no earlier row of its key has a larger rank.

    Earlier rows that are deletes do not matter. `keys`, `ranks` and `deletes` have one item for each row, in the order
    of offsets.
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
    numbers = _dense_ranks(pa.chunked_array([encoded.dictionary]))
    return numbers[encoded.indices.to_numpy()], sorted(encoded.dictionary.to_pylist())


def _check_one_partition(keys: pa.Table, partitions: npt.NDArray[np.int64], names: Sequence[str]) -> None:
    grouped = keys.append_column("", pa.array(partitions)).group_by(keys.column_names, use_threads=False)
    bounds = grouped.aggregate([("", "min"), ("", "max")])
    unordered = bounds.filter(pc.not_equal(bounds["_min"], bounds["_max"]))
    if unordered.num_rows:
        lowest, highest = (names[unordered[each][0].as_py()] for each in ("_min", "_max"))
        raise UnorderedKeyError(f"{lowest} and {highest}")


def _bare(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Return a batch with only the key columns `keys`, renamed to `k0`, `k1` and so on."""
    columns = [batch.column(named_column(batch.schema, key) or key) for key in keys]
    return pa.RecordBatch.from_arrays(columns, names=[f"k{number}" for number in range(len(keys))])
