"""Arrow types of Avro schemas, and growth of a reader's schema by the fields and types of writers' schemas.

The types are equal to the types of Spark's `from_avro` (`SchemaConverters.toSqlType`). All columns are nullable, as in
Spark's mode PERMISSIVE. A union of null and one type becomes that type. A union of int and long becomes a long, a union
of float and double a double. Any other union becomes a struct of `member0`, `member1` and so on, one of which is not
null.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa

from tiered_stream.formats.avro import avro_schema as avro
from tiered_stream.formats.columns.conform import list_of, new_names, widens
from tiered_stream.formats.rows.row_choices import LargeDecimals

_SIMPLE = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"), "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"),
}  # fmt: skip
"""Arrow type by the name of a primitive type, or by the name of a logical type."""
_LARGE = {LargeDecimals.STRING: pa.string(), LargeDecimals.DOUBLE: pa.float64()}
_WIDER_IN_UNION = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def arrow_type(node: avro.AvroType, *, as_read: bool = False) -> pa.DataType:
    """Return the Arrow type of a column for values of the Avro type `node`.

    With `as_read`, the result is the type of the column that kernels fill. Decimals that become texts or DOUBLE later
    are bytes in it.
    """
    below = partial(arrow_type, as_read=as_read)
    match node:
        case avro.Primitive(logical=avro.Decimal() as decimal) | avro.Fixed(logical=avro.Decimal() as decimal):
            return _decimal_type(decimal, as_read=as_read)
        case avro.Primitive():
            return _SIMPLE[str(node.logical or node.kind)]
        case avro.Fixed():
            return pa.binary()
        case avro.Enum():
            return pa.string()
        case avro.Array():
            return list_of(below(node.items))
        case avro.Map():
            return pa.map_(pa.string(), below(node.items))
        case avro.Record():
            return pa.struct([pa.field(field.name, below(field.type)) for field in node.fields])
        case avro.Union():
            one = single_type(node)
            members = (pa.field(f"member{at}", below(branch)) for at, branch in enumerate(node.values))
            return pa.struct(members) if one is None else below(one)


def _decimal_type(decimal: avro.Decimal, *, as_read: bool) -> pa.DataType:
    if decimal.column is LargeDecimals.DECIMAL:
        return pa.decimal128(decimal.precision, decimal.scale)
    return pa.binary() if as_read else _LARGE[decimal.column]


def single_type(union: avro.Union) -> avro.AvroType | None:
    """Return the one Avro type to which all values of a union, except nulls, can be converted.

    Returns the null type if the union has no other branch, and None if the union's column is a struct.
    """
    values = union.values
    kinds = frozenset(branch.kind for branch in values if isinstance(branch, avro.Primitive))
    match len(values):
        case 0:
            return avro.NULL
        case 1:
            return values[0]
        case 2 if kinds in _WIDER_IN_UNION:
            return avro.Primitive(_WIDER_IN_UNION[kinds])
    return None


_LONG, _DOUBLE = avro.Primitive("long"), avro.Primitive("double")
_WIDER = {("int", "long"): _LONG, ("int", "float"): _DOUBLE, ("int", "double"): _DOUBLE, ("float", "double"): _DOUBLE}
"""Type that holds all values of both types exactly, by the pair (reader's type, writer's type)."""


def widened(reader: avro.AvroType, writer: avro.AvroType, *, types: bool = False) -> avro.AvroType:
    """Return the reader's schema plus the fields that only the writer's schema has.

    These fields are nullable, and come last in their records. If `types` is True, a number that has a wider type in the
    writer's schema gets a type that holds the numbers of both schemas. Nothing else changes.
    """
    match reader, writer:
        case avro.Union(), _ if len(reader.values) == 1:
            return _in_union(reader, widened(reader.values[0], writer, types=types))
        case _, avro.Union() if len(writer.values) == 1:
            return widened(reader, writer.values[0], types=types)
        case avro.Array() | avro.Map(), avro.Array() | avro.Map() if type(reader) is type(writer):
            return replace(reader, items=widened(reader.items, writer.items, types=types))
        case avro.Record(), avro.Record():
            return _wider_record(reader, writer, types=types)
        case (
            avro.Primitive(logical=avro.Decimal() as own) | avro.Fixed(logical=avro.Decimal() as own),
            avro.Primitive(logical=avro.Decimal() as other) | avro.Fixed(logical=avro.Decimal() as other),
        ) if types and own.scale == other.scale and own.column is other.column:
            return replace(reader, logical=replace(own, precision=max(own.precision, other.precision)))
        case avro.Primitive(logical=None), avro.Primitive(logical=None) if types:
            return _WIDER.get((reader.kind, writer.kind), reader)
    return reader


def along_column(node: avro.AvroType, column: pa.DataType, *, widen: bool) -> avro.AvroType:
    """Return the Avro schema `node`, adapted to the type `column` of the table's column at all levels of nesting.

    If `widen` is True, numbers get the types of `column` where these are wider, and all fields stay. If `widen` is
    False, fields that `column` lacks are removed, and numbers keep their types.
    """
    below = partial(along_column, widen=widen)
    match node:
        case avro.Union() if len(node.values) == 1:
            return _in_union(node, below(node.values[0], column))
        case avro.Array() if pa.types.is_list(column):
            return avro.Array(below(node.items, column.value_type))
        case avro.Map() if pa.types.is_map(column):
            return avro.Map(below(node.items, column.item_type))
        case avro.Record() if pa.types.is_struct(column):
            kinds = {field.name: field.type for field in column}
            fields = (
                replace(field, type=below(field.type, kinds[field.name])) if field.name in kinds else field
                for field in node.fields
                if widen or field.name in kinds
            )
            return replace(node, fields=tuple(fields))
    return _wider_number(node, column) if widen else node


def _wider_number(node: avro.AvroType, column: pa.DataType) -> avro.AvroType:
    match node:
        case avro.Primitive(logical=avro.Decimal() as own) | avro.Fixed(logical=avro.Decimal() as own):
            is_wider = widens(arrow_type(node), column) and column.scale == own.scale
            return replace(node, logical=replace(own, precision=column.precision)) if is_wider else node
        case avro.Primitive(logical=None) if widens(arrow_type(node), column):
            return next((wider for wider in (_LONG, _DOUBLE) if arrow_type(wider) == column), node)
    return node


def _in_union(union: avro.Union, inner: avro.AvroType) -> avro.Union:
    """Return the union of null and one other type `union`, with `inner` in place of the other type."""
    return avro.Union(tuple(branch if branch == avro.NULL else inner for branch in union.branches))


def _wider_record(reader: avro.Record, writer: avro.Record, *, types: bool) -> avro.Record:
    fields, sources = {field.name: field for field in writer.fields}, avro.field_sources(reader, writer)
    kinds = {name: fields.pop(source).type for name, source in sources.items()}
    known = [
        replace(field, type=widened(field.type, kinds[field.name], types=types)) if field.name in kinds else field
        for field in reader.fields
    ]
    more = new_names([field.name for field in known], fields)
    new = [avro.Field(name, (), _nullable(fields[name].type), None) for name in more]
    return replace(reader, fields=(*known, *new))


def _nullable(kind: avro.AvroType) -> avro.AvroType:
    if kind == avro.NULL or (isinstance(kind, avro.Union) and kind.is_nullable):
        return kind
    return avro.Union((avro.NULL, *(kind.branches if isinstance(kind, avro.Union) else (kind,))))
