"""Conversion of Arrow columns to a table's types, and growth of types. Neither changes a value.

Conversion matches fields by name, and converts numbers to wider types only. A type grows by new fields and, if the
table allows it, by wider types of numbers. Nothing else of a type changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import UnsupportedDataError

Offsets = np.ndarray[Any, Any]


def list_of(kind: pa.DataType, nullable: bool = True) -> pa.ListType:
    """Return the type of lists whose elements have the type `kind`. The element's name is Delta's and Spark's."""
    return pa.list_(pa.field("element", kind, nullable))


def list_items(column: pa.ListArray | pa.MapArray) -> tuple[Offsets, list[pa.Array]]:
    """Return the offsets and the items of a column of lists or maps.

    The items are one array for lists, and two arrays, keys and values, for maps. Row n has the items from `offsets[n]`
    to `offsets[n + 1]`. The offsets begin with 0, even if the column is a slice.
    """
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    parts = (column.keys, column.items) if pa.types.is_map(column.type) else (column.values,)
    return offsets - first, [part.slice(first, last - first) for part in parts]


def with_items(
    column: pa.ListArray | pa.MapArray, offsets: Offsets, items: Sequence[pa.Array], kind: pa.DataType
) -> pa.ListArray | pa.MapArray:
    """Return a column of the type `kind` with the items `items`, and with the nulls of `column`.

    `offsets` and `items` have the form that `list_items` returns.
    """
    # The offsets are a copy, because Arrow does not accept a mask together with sliced offsets.
    return type(column).from_arrays(pa.array(offsets), *items, type=kind, mask=null_mask(column))


def null_mask(column: pa.Array) -> pa.BooleanArray | None:
    """Return a boolean for each row of `column`, True if the row is null. Returns None if the column has no nulls."""
    return column.is_null() if column.null_count else None


def rows_with(marks: pa.BooleanArray, offsets: Offsets) -> pa.BooleanArray:
    """Return a boolean for each row of a column of lists or maps: True if at least one item of the row is marked.

    `marks` has a boolean for each item; null counts as False. Row n has the items from `offsets[n]` to
    `offsets[n + 1]`.
    """
    before = np.concatenate([[0], np.cumsum(pc.fill_null(marks, False).to_numpy(zero_copy_only=False))])
    return pa.array(before[offsets[1:]] > before[offsets[:-1]])


_WIDER = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.int8(), pa.int16(), pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
)
"""Types of numbers. In each row, a type can be widened to all types to its right.

Delta's type widening allows these steps (Delta: `TypeWidening`). The function `widens` has the rule for decimals.
"""
_STEPS = {(narrow, wide) for row in _WIDER for at, narrow in enumerate(row) for wide in row[at + 1 :]}


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether a column of the type `narrow` can be widened to the type `wide` without changing a value.

    Only numbers can be widened. Returns False for two equal types, unless they are decimals.
    """
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    return (narrow, wide) in _STEPS


def conform(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Return `column` converted to the type `kind`, and a boolean for each row: True if a value in it does not fit.

    None in place of the booleans means that all values fit. Values that do not fit become null. Fields that `kind`
    lacks are left out, and fields that the column lacks are null.
    """
    if column.type == kind:
        return column, None
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind), None
    if pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        return _struct_column(column, kind)
    for is_kind in (pa.types.is_list, pa.types.is_map):
        if is_kind(column.type) and is_kind(kind):
            return _items_column(column, kind)
    if widens(column.type, kind):
        return column.cast(kind), None
    return pa.nulls(len(column), kind), column.is_valid()


def _struct_column(column: pa.StructArray, kind: pa.StructType) -> tuple[pa.Array, pa.BooleanArray | None]:
    columns, misfits = [], []
    for field in kind:
        at = column.type.get_field_index(field.name)
        child, misfit = conform(column.field(at) if at >= 0 else pa.nulls(len(column)), field.type)
        columns.append(child)
        misfits += [] if misfit is None else [misfit]
    struct = pa.StructArray.from_arrays(columns, fields=list(kind), mask=column.is_null())
    # A value below a null struct is not used, so it cannot be a misfit.
    return struct, pc.and_(reduce(pc.or_, misfits), column.is_valid()) if misfits else None


def _items_column(
    column: pa.ListArray | pa.MapArray, kind: pa.ListType | pa.MapType
) -> tuple[pa.Array, pa.BooleanArray | None]:
    offsets, items = list_items(column)
    kinds = (kind.key_type, kind.item_type) if pa.types.is_map(kind) else (kind.value_type,)
    conformed, misfits = zip(*map(conform, items, kinds), strict=True)
    if pa.types.is_map(kind) and misfits[0] is not None and misfits[0].true_count:  # a key cannot be null
        return pa.nulls(len(column), kind), column.is_valid()
    conformed_column = with_items(column, offsets, conformed, kind)
    return conformed_column, None if misfits[-1] is None else rows_with(misfits[-1], offsets)


_GROWN = b"grown"


def mark_grown(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with metadata which says that the table may lack its columns or have narrower types."""
    return schema.with_metadata({_GROWN: b""})


def is_grown(schema: pa.Schema) -> bool:
    """Return whether `schema` has the metadata that `mark_grown` sets: the table may lack its columns."""
    return _GROWN in (schema.metadata or {})


def new_names(known: Iterable[str], shown: Iterable[str]) -> list[str]:
    """Return the names in `shown` that are not in `known`, without regard to case, as Delta compares names.

    If names in `shown` differ only by case, only the first of them is returned.
    """
    first: dict[str, str] = {}
    for name in shown:
        first.setdefault(name.lower(), name)
    for name in known:
        first.pop(name.lower(), None)
    return list(first.values())


def grown(planned: pa.DataType, shown: pa.DataType, *, add: bool = True, widen: bool = False) -> pa.DataType:
    """Return the type `planned` with new fields and wider types of numbers from the type `shown`, at all levels.

    If `add` is True, each struct gets the fields that only `shown` has (`new_names`), after its own fields. If `widen`
    is True, a number gets its type in `shown` if that type is wider. Fields are matched by name.
    """
    if pa.types.is_struct(planned) and pa.types.is_struct(shown):
        fields = [
            pa.field(field.name, grown(field.type, shown.field(at).type, add=add, widen=widen))
            if (at := shown.get_field_index(field.name)) >= 0
            else field
            for field in planned
        ]
        new = new_names(planned.names, shown.names) if add else []
        return pa.struct([*fields, *((name, shown.field(name).type) for name in new)])
    if pa.types.is_list(planned) and pa.types.is_list(shown):
        return list_of(grown(planned.value_type, shown.value_type, add=add, widen=widen))
    if pa.types.is_map(planned) and pa.types.is_map(shown):
        return pa.map_(planned.key_type, grown(planned.item_type, shown.item_type, add=add, widen=widen))
    return shown if widen and widens(planned, shown) else planned


def joined(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds all values of the types `one` and `other`, which have grown from the same type.

    Raises:
        UnsupportedDataError: a number has two types of which neither is wider, such as int64 and double.
    """
    if conflict := _conflict(one, other, ""):
        raise UnsupportedDataError(
            f"{conflict}, and no column takes both: widen it to one of them by ALTER TABLE, then values of the other "
            "are kept aside as those that do not decode"
        )
    return grown(one, other, widen=True)


def _conflict(one: pa.DataType, other: pa.DataType, path: str) -> str | None:
    """Return a text that names the first number of which neither type, in `one` or `other`, is wider than the other.

    Returns None if there is no such number. `path` is the path of the field that has the types `one` and `other`.
    """
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        shared = ((field, other.field(at)) for field in one if (at := other.get_field_index(field.name)) >= 0)
        texts = (_conflict(left.type, right.type, f"{path}.{left.name}") for left, right in shared)
        return next(filter(None, texts), None)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _conflict(one.value_type, other.value_type, f"{path}.element")
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _conflict(one.item_type, other.item_type, f"{path}.value")
    numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other))
    if not numbers or one == other or widens(one, other) or widens(other, one):
        return None
    return f"{path.removeprefix('.') or 'the value'} becomes wider as {one} and as {other}"
