"""Growth of a reader's Avro schema with the schemas of its writers: new nullable fields, and wider types of numbers."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tiered_stream.formats.avro.avro_schema import (
    Array,
    AvroType,
    Decimal,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    field_sources,
)
from tiered_stream.formats.avro.avro_types import arrow_type
from tiered_stream.formats.columns.conform import widens

_NULL = Primitive("null")
_LONG, _DOUBLE = Primitive("long"), Primitive("double")
_WIDER = {("int", "long"): _LONG, ("int", "float"): _DOUBLE, ("int", "double"): _DOUBLE, ("float", "double"): _DOUBLE}
"""Type that holds all values of two types exactly, by the reader's and the writer's type."""


def widened(reader: AvroType, writer: AvroType, *, types: bool = False) -> AvroType:
    """Return the reader's schema plus the fields that only the writer's schema has.

    These fields are nullable, and come last in their records. If `types` is True, a number that has a wider type in the
    writer's schema gets a type that holds the numbers of both schemas. Nothing else changes.
    """
    match reader, writer:
        case Union(), _ if len(reader.values) == 1:
            return _in_union(reader, widened(reader.values[0], writer, types=types))
        case _, Union() if len(writer.values) == 1:
            return widened(reader, writer.values[0], types=types)
        case Array(), Array():
            return Array(widened(reader.items, writer.items, types=types))
        case Map(), Map():
            return Map(widened(reader.values, writer.values, types=types))
        case Record(), Record():
            return _wider_record(reader, writer, types=types)
        case (
            Primitive(logical=Decimal() as own) | Fixed(logical=Decimal() as own),
            Primitive(logical=Decimal() as other) | Fixed(logical=Decimal() as other),
        ) if types and own.scale == other.scale:
            return replace(reader, logical=replace(own, precision=max(own.precision, other.precision)))
        case Primitive(logical=None), Primitive(logical=None) if types:
            return _WIDER.get((reader.kind, writer.kind), reader)
    return reader


def only_fields_of(column: pa.DataType, writer: AvroType) -> AvroType:
    """Return the writer's schema without the fields that the type `column` lacks, at any depth."""
    match writer:
        case Union() if len(writer.values) == 1:
            return _in_union(writer, only_fields_of(column, writer.values[0]))
        case Array() if pa.types.is_list(column):
            return Array(only_fields_of(column.value_type, writer.items))
        case Map() if pa.types.is_map(column):
            return Map(only_fields_of(column.item_type, writer.values))
        case Record() if pa.types.is_struct(column):
            kinds = {field.name: field.type for field in column}
            known = (field for field in writer.fields if field.name in kinds)
            fields = (replace(field, type=only_fields_of(kinds[field.name], field.type)) for field in known)
            return replace(writer, fields=tuple(fields))
    return writer


def with_column_numbers(reader: AvroType, column: pa.DataType | None) -> AvroType:
    """Return the reader's schema with the wider number types that `column`, the type of the table's column, has.

    If `column` is None, the schema is returned unchanged.
    """
    match reader:
        case _ if column is None:
            return reader
        case Union() if len(reader.values) == 1:
            return _in_union(reader, with_column_numbers(reader.values[0], column))
        case Array() if pa.types.is_list(column):
            return Array(with_column_numbers(reader.items, column.value_type))
        case Map() if pa.types.is_map(column):
            return Map(with_column_numbers(reader.values, column.item_type))
        case Record() if pa.types.is_struct(column):
            types = {field.name: field.type for field in column}
            fields = (
                replace(field, type=with_column_numbers(field.type, types.get(field.name))) for field in reader.fields
            )
            return replace(reader, fields=tuple(fields))
        case Primitive(logical=Decimal() as own) | Fixed(logical=Decimal() as own):
            is_wider = widens(arrow_type(reader), column) and column.scale == own.scale
            return replace(reader, logical=replace(own, precision=column.precision)) if is_wider else reader
        case Primitive(logical=None) if widens(arrow_type(reader), column):
            return next((wider for wider in (_LONG, _DOUBLE) if arrow_type(wider) == column), reader)
    return reader


def _in_union(union: Union, inner: AvroType) -> Union:
    """Return a union of null and one type with `inner` in place of that type."""
    return Union(tuple(branch if branch == _NULL else inner for branch in union.branches))


def _wider_record(reader: Record, writer: Record, *, types: bool) -> Record:
    fields, sources = {field.name: field for field in writer.fields}, field_sources(reader, writer)
    kinds = {name: fields.pop(source).type for name, source in sources.items()}
    known = [
        replace(field, type=widened(field.type, kinds[field.name], types=types)) if field.name in kinds else field
        for field in reader.fields
    ]
    # The remaining fields are new. Delta's column names are not case-sensitive.
    names = {field.name.lower() for field in known}
    more = (field for field in fields.values() if field.name.lower() not in names)
    new = [Field(field.name, (), _nullable(field.type), None) for field in more]
    return replace(reader, fields=(*known, *new))


def _nullable(kind: AvroType) -> AvroType:
    if kind == _NULL or (isinstance(kind, Union) and kind.is_nullable):
        return kind
    return Union((_NULL, *(kind.branches if isinstance(kind, Union) else (kind,))))
