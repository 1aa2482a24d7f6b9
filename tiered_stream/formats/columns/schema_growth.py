"""Growth of types: by new fields and, if the table allows it, to wider types. Nothing else changes."""

from __future__ import annotations

import pyarrow as pa

from tiered_stream.errors import UnsupportedDataError
from tiered_stream.formats.columns.conform import widens

_GROWN = b"grown"


def mark_grown(schema: pa.Schema) -> pa.Schema:
    """Return the schema with metadata that says: the table may lack columns of the schema, or have narrower types."""
    return schema.with_metadata({_GROWN: b""})


def is_grown(schema: pa.Schema) -> bool:
    """Return whether the schema has the metadata that `mark_grown` sets."""
    return _GROWN in (schema.metadata or {})


def grown(planned: pa.DataType, shown: pa.DataType, *, add: bool = True, widen: bool = False) -> pa.DataType:
    """Return the type `planned`, grown by the fields and the wider types of the type `shown`, at any depth.

    If `add` is True, each struct gets the fields that only `shown` has, after its planned fields. If `widen` is True, a
    number gets its type in `shown` if that type is wider.
    """
    if pa.types.is_struct(planned) and pa.types.is_struct(shown):
        names = {field.name.lower() for field in planned}
        fields = [
            pa.field(field.name, grown(field.type, shown.field(at).type, add=add, widen=widen))
            if (at := shown.get_field_index(field.name)) >= 0
            else field
            for field in planned
        ]
        new = (pa.field(field.name, field.type) for field in shown if add and field.name.lower() not in names)
        return pa.struct([*fields, *new])
    if pa.types.is_list(planned) and pa.types.is_list(shown):
        return pa.list_(pa.field("element", grown(planned.value_type, shown.value_type, add=add, widen=widen)))
    if pa.types.is_map(planned) and pa.types.is_map(shown):
        return pa.map_(planned.key_type, grown(planned.item_type, shown.item_type, add=add, widen=widen))
    return shown if widen and widens(planned, shown) else planned


def joined(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds all values of two types, both of which have grown from the same type.

    Raises:
        UnsupportedDataError: a number has become wider in two ways, so that no type holds both.
    """
    if conflict := _conflict(one, other, ""):
        raise UnsupportedDataError(
            f"{conflict}, and no column takes both: widen it to one of them by ALTER TABLE, then values of the other "
            "are kept aside as those that do not decode (ingest.onDecodeError)"
        )
    return grown(one, other, widen=True)


def _conflict(one: pa.DataType, other: pa.DataType, path: str) -> str | None:
    """Return a text that names the first number whose two types have no common type, or None if there is none."""
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
