"""Growth of a reader's Avro schema with the schemas of its writers: new nullable fields, and wider types of numbers."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tiered_stream.formats.avro.avro_schema import Array, AvroType, Field, Map, Primitive, Record, Union, field_sources
from tiered_stream.formats.avro.avro_types import arrow_type
from tiered_stream.formats.columns.conform import widens

_NULL = Primitive("null")
_LONG, _DOUBLE = Primitive("long"), Primitive("double")
_WIDER = {
    ("int", "long"): _LONG,
    ("int", "float"): _DOUBLE,
    ("int", "double"): _DOUBLE,
    ("float", "double"): _DOUBLE,
}
"""Type that holds all values of two types exactly, by the wanted and the written type."""


def widened(wanted: AvroType, written: AvroType, *, types: bool = False) -> AvroType:
    """Return the reader's schema plus the fields that only the writer has, nullable, at the end of their records.

    With `types`, a number for which the writer has a wider type gets a type that holds both. Nothing else changes.
    """
    match wanted, written:
        case Union(), _ if len(wanted.values) == 1:
            return _in_union(wanted, widened(wanted.values[0], written, types=types))
        case _, Union() if len(written.values) == 1:
            return widened(wanted, written.values[0], types=types)
        case Array(), Array():
            return Array(widened(wanted.items, written.items, types=types))
        case Map(), Map():
            return Map(widened(wanted.values, written.values, types=types))
        case Record(), Record():
            return _wider_record(wanted, written, types=types)
        case Primitive(logical=None), Primitive(logical=None) if types:
            return _WIDER.get((wanted.kind, written.kind), wanted)
    return wanted


def raised(wanted: AvroType, column: pa.DataType) -> AvroType:
    """Return the reader's schema with a column's wider number types, so that values that cannot fit are found early."""
    match wanted:
        case Union() if len(wanted.values) == 1:
            return _in_union(wanted, raised(wanted.values[0], column))
        case Array() if pa.types.is_list(column):
            return Array(raised(wanted.items, column.value_type))
        case Map() if pa.types.is_map(column):
            return Map(raised(wanted.values, column.item_type))
        case Record() if pa.types.is_struct(column):
            kinds = {each.name: each.type for each in column}
            fields = (
                replace(field, type=raised(field.type, kinds[field.name])) if field.name in kinds else field
                for field in wanted.fields
            )
            return replace(wanted, fields=tuple(fields))
        case Primitive(logical=None) if widens(arrow_type(wanted), column):
            return next((each for each in (_LONG, _DOUBLE) if arrow_type(each) == column), wanted)
    return wanted


def _in_union(of: Union, inner: AvroType) -> Union:
    """Return a union of null and one type with `inner` in place of that type."""
    return Union(tuple(each if each == _NULL else inner for each in of.branches))


def _wider_record(wanted: Record, written: Record, *, types: bool) -> Record:
    fields, sources = {field.name: field for field in written.fields}, field_sources(wanted, written)
    kinds = {name: fields.pop(source).type for name, source in sources.items()}
    known = [
        replace(field, type=widened(field.type, kinds[field.name], types=types)) if field.name in kinds else field
        for field in wanted.fields
    ]
    # The remaining fields are new. Delta's column names are not case-sensitive.
    names = {field.name.lower() for field in known}
    more = (field for field in fields.values() if field.name.lower() not in names)
    new = [Field(field.name, (), _nullable(field.type), None) for field in more]
    return replace(wanted, fields=(*known, *new))


def _nullable(kind: AvroType) -> AvroType:
    if kind == _NULL or (isinstance(kind, Union) and kind.is_nullable):
        return kind
    return Union((_NULL, *(kind.branches if isinstance(kind, Union) else (kind,))))
