"""Functions that check or replace the values to which a path leads, through structs, lists and maps."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.columns.list_items import list_items, null_mask, rows_with, with_items

FieldPath = tuple[str, ...]
"""Path to a value: the name of a column, then the names of the nested fields that lead to the value.

`element` stands for a list's elements, `key` and `value` for a map's keys and values.
"""
ELEMENT, MAP_KEY, MAP_VALUE = "element", "key", "value"
Checked = tuple[pa.Array, pa.BooleanArray]
"""Array after a check, which may have replaced values, and a boolean for each value: True if the value breaks the rule.
"""
ColumnCheck = Callable[[pa.Array], Checked]


def check_within(column: pa.Array, path: FieldPath, check: ColumnCheck) -> Checked:
    """Apply `check` to the values at `path` within `column`; return the new column, and a boolean for each row.

    `path` begins below the column. The boolean is True if `check` returned True for any of the row's values; values
    within a null struct, list or map do not count. The new column has the values that `check` returned. If `check`
    returned its argument itself, `column` itself is returned.
    """
    if not path:
        return check(column)
    if pa.types.is_struct(column.type):
        changed, marks = _check_struct(column, path, check)
    else:
        changed, marks = _check_items(column, path, check)
    return changed, pc.and_(marks, column.is_valid())


def _check_struct(column: pa.StructArray, path: FieldPath, check: ColumnCheck) -> Checked:
    at = column.type.get_field_index(path[0])
    child = column.field(at)
    changed, marks = check_within(child, path[1:], check)
    if changed is child:
        return column, marks
    children = [changed if number == at else column.field(number) for number in range(column.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(column.type), mask=null_mask(column)), marks


def _check_items(column: pa.ListArray | pa.MapArray, path: FieldPath, check: ColumnCheck) -> Checked:
    offsets, items = list_items(column)
    at = 0 if path[0] == MAP_KEY else -1  # a list has one array of items, a map has keys and values
    changed, marks = check_within(items[at], path[1:], check)
    if changed is not items[at]:
        items[at] = changed
        column = with_items(column, offsets, items, column.type)
    return column, rows_with(marks, offsets)


def kind_at(kind: pa.DataType, path: FieldPath) -> pa.DataType | None:
    """Return the type that `path` leads to within `kind`, or None if `kind` has no such path."""
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
