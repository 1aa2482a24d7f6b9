"""Inference of the type of JSON documents from a sample, by the rules of Spark (`JsonInferSchema`, default options).

Integers become bigint or, if they are larger, decimal. Integers of more than 38 digits and all other numbers become
double. A field becomes a string if all its values are null or empty strings, or if its values have no common type.
Fields are in the order of their names.

`fitting_schema` returns the type of one document as SQL text. Errors show it for a record that does not fit its schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.formats.columns.conform import list_of
from tiered_stream.formats.json.json_text import Fields, Integer, Real, parse_json
from tiered_stream.formats.sql.sql_reader import MAX_PRECISION, sql_columns

_LONG = pa.decimal128(20, 0)  # Spark: DecimalType.forType(LongType)
_HALF_PAIR = re.compile("[\ud800-\udfff]")
"""Pattern of half a surrogate pair. No column can have a name with it, because it has no UTF-8."""


def infer_json(values: Iterable[bytes | None]) -> pa.StructType:
    """Return the struct type that has the fields of all JSON documents in `values`.

    Values that are not JSON objects are ignored.

    Raises:
        ConfigurationError: no document has a field.
    """
    kinds: list[pa.DataType] = []
    for value in values:
        with suppress(CorruptDataError):
            document = parse_json(value or b"")
            kinds += [_kind(document)] if type(document) is Fields else []
    settled = _settled(_common_of(kinds))
    if settled is None or not types.is_struct(settled):
        raise ConfigurationError("no value of the sample is a JSON object with a field; give the schema")
    return settled


def _kind(value: Any) -> pa.DataType:
    match value:
        case bool():
            return pa.bool_()
        case Integer():
            digits = len(value.removeprefix("-"))
            if -(1 << 63) <= int(value) < 1 << 63:
                return pa.int64()
            return pa.decimal128(digits, 0) if digits <= MAX_PRECISION else pa.float64()
        case Real():
            return pa.float64()
        case str():
            return pa.string() if value else pa.null()
        case Fields():
            members: dict[str, list[pa.DataType]] = {}
            for name, member in value:
                if not _HALF_PAIR.search(name):
                    members.setdefault(name, []).append(_kind(member))
            return _struct_of({name: _common_of(kinds) for name, kinds in members.items()})
        case list():
            return list_of(_common_of([*map(_kind, value)]))
    return pa.null()


def _common_of(kinds: list[pa.DataType]) -> pa.DataType:
    """Return the type that holds values of all types in `kinds`; the null type if `kinds` is empty.

    Types are joined in pairs. Joined one after another, many small structs with different fields would take time that
    grows with the square of their number.
    """
    while len(kinds) > 1:
        odd = kinds[-1:] if len(kinds) % 2 else []
        kinds = [*map(_common, kinds[::2], kinds[1::2]), *odd]
    return kinds[0] if kinds else pa.null()


def _struct_of(fields: dict[str, pa.DataType]) -> pa.StructType:
    """Return the struct type with these fields in Java's order of strings, which compares their UTF-16 units."""
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    return pa.struct([(name, fields[name]) for name in names])


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type that holds values of both types; string if there is no other (Spark: `compatibleType`)."""
    if left == right or types.is_null(right):
        return left
    if types.is_null(left):
        return right
    if types.is_struct(left) and types.is_struct(right):
        fields = {field.name: field.type for field in left}
        for field in right:
            fields[field.name] = _common(fields.get(field.name, pa.null()), field.type)
        return _struct_of(fields)
    if types.is_list(left) and types.is_list(right):
        return list_of(_common(left.value_type, right.value_type))
    if _is_number(left) and _is_number(right):
        if types.is_float64(left) or types.is_float64(right):
            return pa.float64()
        # Only integers become decimals here, so no decimal has a scale.
        digits = ((_LONG if types.is_int64(number) else number).precision for number in (left, right))
        return pa.decimal128(max(digits), 0)
    return pa.string()


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_int64(kind) or types.is_float64(kind) or types.is_decimal128(kind))


def _settled(kind: pa.DataType) -> pa.DataType | None:
    """Return `kind` with string in place of each null type (Spark: `canonicalizeType`).

    Structs without fields, and fields without a name, are removed, because a table cannot have them. Returns None if
    `kind` is a struct or a list from which nothing remains.
    """
    if types.is_null(kind):
        return pa.string()
    if types.is_list(kind):
        item = _settled(kind.value_type)
        return None if item is None else list_of(item)
    if types.is_struct(kind):
        settled = ((field.name, _settled(field.type)) for field in kind if field.name)
        fields = [(name, field_kind) for name, field_kind in settled if field_kind is not None]
        return pa.struct(fields) if fields else None
    return kind


MAX_CHARACTERS = 1_000
"""Maximum number of characters of a schema that `fitting_schema` returns."""
_PAYLOAD, _BEFORE, _AFTER = "payload", "before", "after"
_WITH_TYPES = (pa.field("op", pa.string()), pa.field("ts_ms", pa.int64()))


def fitting_schema(document: bytes | None, *, is_debezium: bool = False) -> str:
    """Return the type of a document as SQL text, or '' if the document is not a JSON object or the text is too long.

    If the document has a field `payload` that is an object, as Kafka Connect's JSON converter writes it, the result has
    only this field. If `is_debezium` is true, the document may be Debezium's envelope. The result then has the fields
    that a table needs, and `before` and `after` have the same columns.
    """
    try:
        kind = infer_json([document])
    except ConfigurationError:
        return ""
    within = _struct_within(kind, _PAYLOAD)
    fields = _fields(kind if within is None else within, is_debezium)
    text = sql_columns(fields if within is None else [pa.field(_PAYLOAD, pa.struct(fields))])
    return text if len(text) <= MAX_CHARACTERS else ""


def _fields(kind: pa.StructType, is_debezium: bool) -> list[pa.Field]:
    image = _struct_within(kind, _AFTER) or _struct_within(kind, _BEFORE)
    if not is_debezium or image is None or kind.get_field_index("op") < 0:
        return list(kind)
    return [pa.field(_BEFORE, image), pa.field(_AFTER, image), *_WITH_TYPES]


def _struct_within(kind: pa.StructType, name: str) -> pa.StructType | None:
    at = kind.get_field_index(name)
    return kind.field(at).type if at >= 0 and types.is_struct(kind.field(at).type) else None
