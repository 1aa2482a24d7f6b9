"""Conversion of columns to a table's types without changing a value: fields by name, numbers to wider types only."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

_WIDER = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.int8(), pa.int16(), pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
)
"""Types of numbers, each of which may be widened to all types to its right.

Delta's type widening allows these steps (Delta: `TypeWidening`); decimals are handled in `widens`.
"""
_STEPS = {(narrow, wide) for row in _WIDER for at, narrow in enumerate(row) for wide in row[at + 1 :]}
assert all(step in _STEPS for row in _WIDER for step in pairwise(row))


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether every value of the type `narrow` is a value of the type `wide`. Neither type has fields."""
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    return (narrow, wide) in _STEPS


def conform(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Return the column as type `kind`, and flags of the values that do not fit, which are null in it (None: all fit).

    Fields that `kind` does not have are left out. Fields that the column does not have are null.
    """
    if column.type == kind:
        return column, None
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind), None
    if pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        return _struct_column(column, kind)
    if pa.types.is_list(column.type) and pa.types.is_list(kind):
        return _list_column(column, kind)
    if pa.types.is_map(column.type) and pa.types.is_map(kind):
        return _map_column(column, kind)
    if widens(column.type, kind):
        return column.cast(kind), None
    return pa.nulls(len(column), kind), column.is_valid()


def _struct_column(column: pa.StructArray, kind: pa.StructType) -> tuple[pa.Array, pa.BooleanArray | None]:
    columns, misfit = [], None
    for field in kind:
        at = column.type.get_field_index(field.name)
        child, bad = conform(column.field(at), field.type) if at >= 0 else (pa.nulls(len(column), field.type), None)
        columns.append(child)
        misfit = _either(misfit, bad)
    made = pa.StructArray.from_arrays(columns, fields=list(kind), mask=column.is_null())
    # A value below a null struct is not used, so it cannot be a misfit.
    return made, None if misfit is None else pc.and_(misfit, column.is_valid())


def _list_column(column: pa.ListArray, kind: pa.ListType) -> tuple[pa.Array, pa.BooleanArray | None]:
    start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    items, bad = conform(column.values.slice(start, end - start), kind.value_type)
    made = pa.ListArray.from_arrays(_ends(column, start), items, type=kind, mask=_mask(column))
    return made, _by_row(column, bad)


def _map_column(column: pa.MapArray, kind: pa.MapType) -> tuple[pa.Array, pa.BooleanArray | None]:
    start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    keys, bad_keys = conform(column.keys.slice(start, end - start), kind.key_type)
    if bad_keys is not None and bad_keys.true_count:
        return pa.nulls(len(column), kind), column.is_valid()
    items, bad = conform(column.items.slice(start, end - start), kind.item_type)
    made = pa.MapArray.from_arrays(_ends(column, start), keys, items, type=kind, mask=_mask(column))
    return made, _by_row(column, bad)


def _ends(column: pa.ListArray | pa.MapArray, start: int) -> pa.Array:
    # A copy, because Arrow does not accept a mask together with sliced offsets.
    return pa.array((column.offsets.to_numpy() - start).astype("int32"))


def _mask(column: pa.Array) -> pa.BooleanArray | None:
    return column.is_null() if column.null_count else None


def _by_row(column: pa.ListArray | pa.MapArray, bad: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return flags of the rows that have at least one bad item, or None if `bad` is None."""
    if bad is None:
        return None
    ends = column.offsets.to_numpy() - column.offsets[0].as_py()
    counted = pc.cumulative_sum(bad.cast(pa.int64())).to_pylist()
    before = [0, *counted]
    return pa.array([before[end] > before[begin] for begin, end in pairwise(ends)], pa.bool_())


def _either(one: pa.BooleanArray | None, other: pa.BooleanArray | None) -> pa.BooleanArray | None:
    if one is None or other is None:
        return one if other is None else other
    return pc.or_(one, other)
