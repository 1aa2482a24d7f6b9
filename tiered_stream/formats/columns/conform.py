"""Conversion of columns to a table's types without changing a value: fields by name, numbers to wider types only."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.columns.list_items import list_items, rows_with, with_items

_WIDER = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.int8(), pa.int16(), pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
)
"""Types of numbers, each of which may be widened to all types to its right.

Delta's type widening allows these steps (Delta: `TypeWidening`); decimals are handled in `widens`.
"""
_STEPS = {(narrow, wide) for row in _WIDER for at, narrow in enumerate(row) for wide in row[at + 1 :]}


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether a column of the type `narrow` may be widened to the type `wide` without changing a value.

    Returns False for two equal types, unless they are decimals, and for types with fields.
    """
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    return (narrow, wide) in _STEPS


def conform(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Return the column with the type `kind`, and a boolean for each row: True if one of its values does not fit.

    None in place of the booleans means that all values fit. Values that do not fit become null. Fields that `kind` does
    not have are left out. Fields that the column does not have are null.
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
    columns, misfit = [], None
    for field in kind:
        at = column.type.get_field_index(field.name)
        child, bad = conform(column.field(at), field.type) if at >= 0 else (pa.nulls(len(column), field.type), None)
        columns.append(child)
        misfit = bad if misfit is None else misfit if bad is None else pc.or_(misfit, bad)
    struct = pa.StructArray.from_arrays(columns, fields=list(kind), mask=column.is_null())
    # A value below a null struct is not used, so it cannot be a misfit.
    return struct, None if misfit is None else pc.and_(misfit, column.is_valid())


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
