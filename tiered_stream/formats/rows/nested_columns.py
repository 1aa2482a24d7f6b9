"""Functions that check or change values within structs, lists and maps, at the end of a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FieldPath = tuple[str, ...]
"""Path to a value: a column, and the fields that lead into it.

`element`, `key` and `value` lead into lists and maps.
"""
ELEMENT, MAP_KEY, MAP_VALUE = "element", "key", "value"
Looked = tuple[pa.Array, pa.BooleanArray]
"""Array, changed or not, and a mark for each of its slots."""
Look = Callable[[pa.Array], Looked]
_Offsets = np.ndarray[Any, Any]


def look_within(column: pa.Array, path: FieldPath, look: Look) -> Looked:
    """Apply `look` to the values at `path`; return the new column, and a mark for each row with a marked value.

    Marks of values below a null do not count. The column itself is returned if nothing in it changed.
    """
    if not path:
        return look(column)
    if pa.types.is_struct(column.type):
        changed, marks = _within_struct(column, path, look)
    else:
        changed, marks = _within_items(column, path, look)
    return changed, pc.and_(marks, column.is_valid())


def _within_struct(column: pa.StructArray, path: FieldPath, look: Look) -> Looked:
    at = column.type.get_field_index(path[0])
    child = column.field(at)
    changed, marks = look_within(child, path[1:], look)
    if changed is child:
        return column, marks
    children = [changed if number == at else column.field(number) for number in range(column.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(column.type), mask=_mask(column)), marks


def _within_items(column: pa.ListArray | pa.MapArray, path: FieldPath, look: Look) -> Looked:
    # A slice's offsets lead into the whole list. They are copied, because Arrow accepts no mask with sliced offsets.
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    offsets = offsets - first
    ends, mask = pa.array(offsets), _mask(column)
    if not pa.types.is_map(column.type):
        items = column.values.slice(first, last - first)
        changed, marks = look_within(items, path[1:], look)
        if changed is not items:
            column = type(column).from_arrays(ends, changed, type=column.type, mask=mask)
        return column, rows_with(marks, offsets)
    keys, items = (each.slice(first, last - first) for each in (column.keys, column.items))
    looked_at = keys if path[0] == MAP_KEY else items
    changed, marks = look_within(looked_at, path[1:], look)
    if changed is not looked_at:
        keys, items = (changed, items) if path[0] == MAP_KEY else (keys, changed)
        column = pa.MapArray.from_arrays(ends, keys, items, type=column.type, mask=mask)
    return column, rows_with(marks, offsets)


def rows_with(marks: pa.BooleanArray, ends: _Offsets) -> pa.BooleanArray:
    """Return a mark for each row that has a marked item; row n has the items from `ends[n]` to `ends[n + 1]`."""
    before = np.concatenate([[0], np.cumsum(pc.fill_null(marks, False).to_numpy(zero_copy_only=False))])
    return pa.array(before[ends[1:]] > before[ends[:-1]])


def kind_at(kind: pa.DataType, path: FieldPath) -> pa.DataType | None:
    """Return the type that `path` leads to within `kind`, or None if there is no such field."""
    for step in path:
        if pa.types.is_struct(kind):
            at = kind.get_field_index(step)
            if at < 0:
                return None
            kind = kind.field(at).type
        elif pa.types.is_map(kind):
            kind = kind.key_type if step == MAP_KEY else kind.item_type
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        else:
            return None
    return kind


def _mask(column: pa.Array) -> pa.BooleanArray | None:
    return column.is_null() if column.null_count else None
