"""Placeholders that Debezium writes for values that the database does not send (`unavailable.value.placeholder`).

PostgreSQL logs no value of a large column (TOAST) that an update leaves as it is, and Oracle no LOB. Debezium then
writes a placeholder in the form of the column's type (Debezium: `UnchangedToastedPlaceholder`):

| Column | Placeholder |
|---|---|
| text, JSON, XML | the text; for `hstore` as JSON an object with the text as its only key and as its value |
| bytes | the text's UTF-8, or the text of `binary.handling.mode`: base64 or hexadecimal |
| map (`hstore`) | one entry with the text as key and as value |
| list of texts or bytes | one item like a column of this type; for `uuid[]` the UUID of version 3 of the bytes |
| list of whole numbers, floats or days | one item for each byte |
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Collection
from functools import reduce
from hashlib import md5
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.rows.kafka_columns import find_column
from tiered_stream.formats.rows.row_choices import placeholder_bytes

UNAVAILABLE = "unavailable"
"""Name of the hidden column with the names of a row's columns that have a placeholder, in lower case."""
NAMES = pa.list_(pa.string())
"""Type of the column `UNAVAILABLE`; null: the row has no placeholder."""
_Flags = npt.NDArray[np.bool_]


class UnavailableValues:
    """Finder of placeholders in rows. `placeholder` is the connector's setting; columns in `others` never have any."""

    def __init__(self, placeholder: str, others: Collection[str]) -> None:
        self._bytes = placeholder_bytes(placeholder)
        self._others = {name.lower() for name in others}
        text = self._bytes.decode(errors="replace")
        forms = [text, *(code(self._bytes).decode() for code in (b64encode, urlsafe_b64encode)), self._bytes.hex()]
        forms += [orjson.dumps({text: text}).decode()]
        # Java: UUID.nameUUIDFromBytes
        forms += [str(UUID(bytes=md5(self._bytes, usedforsecurity=False).digest(), version=3))]
        self._texts = pa.array(forms)
        self._sizes = {len(form.encode()) for form in forms}

    def of(self, rows: pa.RecordBatch) -> pa.ListArray:
        """Return for each row the names of its columns with a placeholder, as the column `UNAVAILABLE` has them."""
        found = {
            field.name.lower(): flags
            for field, column in zip(rows.schema, rows.columns, strict=True)
            if field.name.lower() not in self._others and (flags := self._found(column)).any()
        }
        if not found:
            return pa.nulls(rows.num_rows, NAMES)
        names, flags = list(found), np.stack(list(found.values()), axis=1)
        ends = np.concatenate([[0], np.cumsum(flags.sum(axis=1))])
        items = pa.array(names).take(pa.array(np.nonzero(flags)[1]))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=pa.array(~flags.any(axis=1)))

    def _found(self, column: pa.Array) -> _Flags:
        types, kind = pa.types, column.type
        if types.is_string(kind):
            return _where(column, self._sizes, self._are_texts)
        if types.is_binary(kind):
            return _where(column, [len(self._bytes)], self._are_bytes)
        if types.is_map(kind):
            return _where(column, [1], self._are_entries)
        if types.is_list(kind):
            return _where(column, [len(self._bytes) if _is_number(kind.value_type) else 1], self._are_items)
        return np.zeros(len(column), bool)

    def _are_texts(self, column: pa.Array) -> _Flags:
        return _flags(pc.is_in(column, self._texts))

    def _are_bytes(self, column: pa.Array) -> _Flags:
        return _flags(pc.equal(column, pa.scalar(self._bytes, column.type)))

    def _are_entries(self, column: pa.MapArray) -> _Flags:
        return self._found(column.keys) & self._found(column.items)

    def _are_items(self, column: pa.ListArray) -> _Flags:
        items = column.flatten()
        if not _is_number(items.type):
            return self._found(items)
        numbers = (items.cast(pa.int32()) if pa.types.is_date(items.type) else items).to_numpy(zero_copy_only=False)
        equal: _Flags = (numbers.reshape(len(column), -1) == np.frombuffer(self._bytes, np.int8)).all(axis=1)
        return equal


def unavailable_names(rows: pa.RecordBatch) -> pa.ListArray:
    """Return the hidden column `UNAVAILABLE` of rows from `ChangeRecords.apply`; without placeholders, nulls."""
    at = find_column(rows.schema, UNAVAILABLE)
    return pa.nulls(rows.num_rows, NAMES) if at < 0 else rows.column(at)


def unavailable_flags(names: pa.ListArray | pa.ChunkedArray) -> dict[str, _Flags]:
    """Return by column, for a column `UNAVAILABLE`, whether each row has a placeholder there.

    The result has only columns with a placeholder in any row.
    """
    if names.null_count == len(names):
        return {}
    rows, items = pc.list_parent_indices(names).to_numpy(), pc.list_flatten(names).to_numpy(zero_copy_only=False)
    found = {name: np.zeros(len(names), bool) for name in sorted(set(items))}
    for name, flags in found.items():
        flags[rows[items == name]] = True
    return found


def _where(column: pa.Array, sizes: Collection[int], test: Callable[[pa.Array], _Flags]) -> _Flags:
    """Return for each value whether it is not null, has one of the `sizes`, and meets `test`.

    A size is the number of bytes of a text or of bytes, or the number of items of a list or of a map.
    """
    found = np.zeros(len(column), bool)
    if len(column):
        ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
        own = np.diff(ends)
        found = reduce(np.logical_or, (own == size for size in sizes))
    if found.any():
        found &= _flags(column.is_valid())
        found[found] = test(column.filter(pa.array(found)))
    return found


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_date32(kind))


def _flags(column: pa.Array) -> _Flags:
    flags: _Flags = column.fill_null(False).to_numpy(zero_copy_only=False)
    return flags
