"""Arrow types of Avro schemas, equal to the types of Spark's `from_avro` (Spark: `SchemaConverters.toSqlType`).

All columns are nullable, as in Spark's mode PERMISSIVE. A union of null and one type becomes that type. A union of int
and long becomes a long, a union of float and double a double. Any other union becomes a struct of `member0`, `member1`
and so on, one of which is not null.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from tiered_stream.formats.avro.avro_schema import Array, AvroType, Decimal, Enum, Fixed, Map, Primitive, Record, Union
from tiered_stream.formats.rows.row_choices import LargeDecimals

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LARGE = {LargeDecimals.STRING: pa.string(), LargeDecimals.DOUBLE: pa.float64()}
_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def arrow_type(node: AvroType, *, as_read: bool = False) -> pa.DataType:
    """Return the Arrow type of a column for values of the Avro type `node`.

    With `as_read`, decimals that become texts or DOUBLE are bytes, as kernels read them.
    """
    below = partial(arrow_type, as_read=as_read)
    match node:
        case Primitive(logical=Decimal() as decimal) | Fixed(logical=Decimal() as decimal):
            return _decimal_type(decimal, as_read=as_read)
        case Primitive(logical=str(logical)):
            zone = None if logical.startswith("local-") else "UTC"
            return pa.date32() if logical == "date" else pa.timestamp("us", tz=zone)
        case Primitive():
            return _PRIMITIVES[node.kind]
        case Fixed():
            return pa.binary()
        case Enum():
            return pa.string()
        case Array():
            return pa.list_(pa.field("element", below(node.items)))
        case Map():
            return pa.map_(pa.string(), below(node.values))
        case Record():
            return pa.struct([pa.field(field.name, below(field.type)) for field in node.fields])
        case Union():
            one = single_type(node)
            members = (pa.field(f"member{at}", below(branch)) for at, branch in enumerate(node.values))
            return pa.struct(members) if one is None else below(one)


def _decimal_type(decimal: Decimal, *, as_read: bool) -> pa.DataType:
    if decimal.column is LargeDecimals.DECIMAL:
        return pa.decimal128(decimal.precision, decimal.scale)
    return pa.binary() if as_read else _LARGE[decimal.column]


def single_type(union: Union) -> AvroType | None:
    """Return the one type to which all values of a union, except nulls, can be converted.

    Returns the null type if the union has no other branch, and None if the union becomes a struct.
    """
    values = union.values
    kinds = frozenset(branch.kind for branch in values if isinstance(branch, Primitive))
    match len(values):
        case 0:
            return Primitive("null")
        case 1:
            return values[0]
        case 2 if kinds in _WIDER:
            return Primitive(_WIDER[kinds])
    return None
