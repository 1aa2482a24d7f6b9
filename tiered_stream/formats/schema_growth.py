"""Types that grow: fields are added, and nothing else is changed."""

from __future__ import annotations

import pyarrow as pa

from tiered_stream.formats.conform import widens

_GROWN = b"grown"


def mark_grown(schema: pa.Schema) -> pa.Schema:
    """The schema of rows that have more than their table was known to have."""
    return schema.with_metadata({_GROWN: b""})


def is_grown(schema: pa.Schema) -> bool:
    """Whether the table may lack columns of these rows."""
    return _GROWN in (schema.metadata or {})


def grown(planned: pa.DataType, shown: pa.DataType) -> pa.DataType:
    """The planned type with the fields that `shown` has more, nested ones too, each after those that were there."""
    if pa.types.is_struct(planned) and pa.types.is_struct(shown):
        return pa.struct(_fields(planned, shown))
    if pa.types.is_list(planned) and pa.types.is_list(shown):
        return pa.list_(pa.field("element", grown(planned.value_type, shown.value_type)))
    if pa.types.is_map(planned) and pa.types.is_map(shown):
        return pa.map_(planned.key_type, grown(planned.item_type, shown.item_type))
    return planned


def _fields(planned: pa.StructType, shown: pa.StructType) -> list[pa.Field]:
    there = {each.name.lower() for each in planned}
    kept = [
        pa.field(each.name, grown(each.type, shown.field(at).type))
        if (at := shown.get_field_index(each.name)) >= 0
        else each
        for each in planned
    ]
    return [*kept, *(pa.field(each.name, each.type) for each in shown if each.name.lower() not in there)]


def adopted(planned: pa.DataType, table: pa.DataType) -> pa.DataType:
    """The planned type as a table already has it: the table's wider numbers, and its fields that are not planned."""
    if pa.types.is_struct(planned) and pa.types.is_struct(table):
        fields = [
            pa.field(each.name, adopted(each.type, table.field(at).type))
            if (at := table.get_field_index(each.name)) >= 0
            else each
            for each in planned
        ]
        return grown(pa.struct(fields), table)
    if pa.types.is_list(planned) and pa.types.is_list(table):
        return pa.list_(pa.field("element", adopted(planned.value_type, table.value_type)))
    if pa.types.is_map(planned) and pa.types.is_map(table):
        return pa.map_(planned.key_type, adopted(planned.item_type, table.item_type))
    return table if widens(planned, table) else planned
