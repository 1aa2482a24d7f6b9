"""A reader's schema that grows with those of its writers, by fields that may be null."""

from __future__ import annotations

from dataclasses import replace

from tiered_stream.formats.avro_schema import Array, AvroType, Field, Map, Primitive, Record, Union, field_sources

_NULL = Primitive("null")


def widened(wanted: AvroType, written: AvroType) -> AvroType:
    """The reader's schema with the fields that a writer has more, at the end of their records; nothing else changes."""
    match wanted, written:
        case Union(), _ if len(wanted.values) == 1:
            (inner,) = wanted.values
            wider = widened(inner, written)
            return Union(tuple(wider if each is inner else each for each in wanted.branches))
        case _, Union() if len(written.values) == 1:
            return widened(wanted, written.values[0])
        case Array(), Array():
            return Array(widened(wanted.items, written.items))
        case Map(), Map():
            return Map(widened(wanted.values, written.values))
        case Record(), Record():
            return _wider_record(wanted, written)
    return wanted


def _wider_record(wanted: Record, written: Record) -> Record:
    fields, sources = {field.name: field for field in written.fields}, field_sources(wanted, written)
    types = {name: fields.pop(source).type for name, source in sources.items()}
    known = [
        replace(field, type=widened(field.type, types[field.name])) if field.name in types else field
        for field in wanted.fields
    ]
    # The fields that are left are new; Delta's names of columns have no case.
    names = {field.name.lower() for field in known}
    more = (field for field in fields.values() if field.name.lower() not in names)
    new = [Field(field.name, (), _nullable(field.type), None) for field in more]
    return replace(wanted, fields=(*known, *new))


def _nullable(kind: AvroType) -> AvroType:
    if kind == _NULL or (isinstance(kind, Union) and kind.is_nullable):
        return kind
    return Union((_NULL, *(kind.branches if isinstance(kind, Union) else (kind,))))
