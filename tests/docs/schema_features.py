"""Tables of what becomes of each feature of a schema, computed by the readers of schemas themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from typing import Any

import pyarrow as pa

from tests.rigs.tables import markdown
from tiered_stream.errors import ConfigurationError, UnsupportedDataError
from tiered_stream.formats.avro.avro_schema import parse_avro_schema
from tiered_stream.formats.avro.avro_types import arrow_type
from tiered_stream.formats.json.json_schema import json_schema_kind
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tiered_stream.formats.rows.change_records import UnavailableValues
from tiered_stream.formats.rows.row_choices import AS_SPARK, AvroColumns, LargeDecimals

_NAMES = {
    pa.int32(): "INT", pa.int64(): "BIGINT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN",
    pa.string(): "STRING", pa.binary(): "BINARY", pa.date32(): "DATE", pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ", pa.null(): "none", pa.duration("us"): "INTERVAL DAY TO SECOND",
}  # fmt: skip
_A, _B = {"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}
_TEXT = "the JSON text"
JSON: tuple[tuple[Any, str], ...] = (
    ({"type": "string"}, ""),
    ({"type": "integer"}, ""),
    ({"type": "number"}, ""),
    ({"type": "boolean"}, ""),
    ({"type": "null"}, "null"),
    ({"type": ["integer", "null"]}, "every field may be null"),
    ({"type": ["integer", "string"]}, f"several types: {_TEXT}"),
    ({"type": "object"}, f"no properties are known: {_TEXT}"),
    ({"type": "object", **_A}, "one field for each of `properties`"),
    ({"type": "object", "additionalProperties": {"type": "number"}}, ""),
    ({"type": "object", **_A, "additionalProperties": {"type": "number"}}, "only `properties` are fields"),
    ({"type": "object", "patternProperties": {"^a": {"type": "number"}}}, f"names are not known: {_TEXT}"),
    ({"type": "array", "items": {"type": "integer"}}, ""),
    ({"type": "array"}, f"each item is {_TEXT}"),
    ({"type": "array", "prefixItems": [{"type": "integer"}]}, f"types by position: {_TEXT}"),
    ({"type": "array", "items": [{"type": "integer"}]}, f"as `prefixItems`, up to 2019-09: {_TEXT}"),
    ({"type": "array", "contains": {"type": "integer"}}, "a condition"),
    ({"enum": ["a", None]}, "the type of the values"),
    ({"const": 3}, "the type of the value"),
    ({"type": "string", "format": "date"}, ""),
    ({"type": "string", "format": "date-time"}, ""),
    ({"type": "string", "format": "time"}, "Delta has no time of day; other formats are texts, too"),
    ({"type": "string", "contentEncoding": "base64"}, "decoded"),
    ({"type": "string", "contentMediaType": "application/json"}, "not parsed"),
    ({"allOf": [_A, _B]}, "all fields"),
    ({"type": "object", **_A, "anyOf": [{"required": ["a"]}, _B]}, "alternatives add fields"),
    ({"type": "object", **_A, "oneOf": [{"required": ["a"]}, _B]}, "alternatives add fields"),
    ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "every field may be null"),
    ({"oneOf": [_A, _B]}, f"a union of different types: {_TEXT}"),
    ({"type": "integer", "anyOf": [{"minimum": 3}, {"maximum": 0}]}, "a condition"),
    ({"type": "integer", "not": {"const": 3}}, "a condition"),
    ({"type": "object", **_A, "if": {"required": ["a"]}, "then": _B, "else": {}}, "`then` and `else` add fields"),
    ({"type": "object", **_A, "dependentSchemas": {"a": _B}}, "adds fields"),
    ({"type": "object", **_A, "dependencies": {"a": _B}}, "as `dependentSchemas`, in draft 7"),
    ({"type": "object", **_A, "dependentRequired": {"a": ["b"]}}, "a condition"),
    ({"type": "object", **_A, "propertyNames": {"maxLength": 3}}, "a condition"),
    ({"type": "object", **_A, "unevaluatedProperties": False, "required": ["a"]}, "conditions"),
    ({"type": "number", "minimum": 0, "exclusiveMaximum": 9, "multipleOf": 0.01}, "conditions"),
    ({"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a"}, "conditions"),
    ({"type": "integer", "title": "t", "description": "d", "default": 3, "deprecated": True}, "notes"),
    ({"$ref": "#/$defs/d", **_A}, "with the fields next to it; up to draft 7 they have no meaning"),
    ({"$ref": "#d"}, ""),
    ({"$dynamicRef": "#d"}, ""),
    ({"$recursiveRef": "#"}, ""),
    (True, f"any value: {_TEXT}"),
)
AVRO: tuple[tuple[Any, str, AvroColumns], ...] = (
    *((kind, "", AS_SPARK) for kind in ("boolean", "int", "long", "float", "double", "bytes", "string")),
    ({"type": "fixed", "name": "f", "size": 4}, "", AS_SPARK),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, "the symbol", AS_SPARK),
    ({"type": "array", "items": "int"}, "", AS_SPARK),
    ({"type": "map", "values": "int"}, "", AS_SPARK),
    ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, "", AS_SPARK),
    (["null", "int"], "every field may be null", AS_SPARK),
    (["int", "long"], "", AS_SPARK),
    (["float", "double"], "", AS_SPARK),
    (["int", "string"], "one member is not null", AS_SPARK),
    *(({"type": kind, "logicalType": logical}, why, AS_SPARK) for kind, logical, why in (
        ("int", "date", ""), ("int", "time-millis", "Delta has no time of day"),
        ("long", "time-micros", "Delta has no TIME, which `from_avro` gives in Spark 4.2"),
        ("long", "timestamp-millis", ""),
        ("long", "timestamp-micros", ""), ("long", "timestamp-nanos", "a TIMESTAMP has microseconds"),
        ("long", "local-timestamp-millis", ""), ("long", "local-timestamp-micros", ""),
        ("long", "local-timestamp-nanos", "a TIMESTAMP_NTZ has microseconds"), ("string", "uuid", ""),
    )),
    ({"type": "fixed", "name": "f", "size": 12, "logicalType": "duration"}, "months, days and milliseconds", AS_SPARK),
    *(({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}, why, AvroColumns(large))
      for precision, why, large in (
        (9, "", LargeDecimals.DECIMAL),
        (64, "larger values do not decode", LargeDecimals.DECIMAL),
        (64, "`ingest.largeDecimals=string`", LargeDecimals.STRING),
        (64, "`ingest.largeDecimals=double`", LargeDecimals.DOUBLE),
        (64, "`ingest.largeDecimals=binary`", LargeDecimals.BINARY),
    )),
    ({"type": "bytes", "logicalType": "big-decimal"}, "each value has a scale of its own", AS_SPARK),
)  # fmt: skip
NAMED: tuple[tuple[str, str, str | None], ...] = (
    *(("int", f"io.debezium.time.{name}", None) for name in ("Date", "Time", "Year")),
    *(("long", f"io.debezium.time.{name}", None) for name in (
        "Timestamp", "MicroTimestamp", "NanoTimestamp", "MicroTime", "NanoTime", "MicroDuration", "NanoDuration")),
    *(("string", f"io.debezium.{name}", None) for name in (
        "time.ZonedTimestamp", "time.ZonedTime", "time.IsoDate", "time.IsoTime", "time.IsoTimestamp", "time.Interval",
        "data.Json", "data.Xml", "data.Uuid", "data.Enum")),
    ("bytes", "io.debezium.data.Bits", None),
    ("int", "org.apache.kafka.connect.data.Date", "date"),
    ("int", "org.apache.kafka.connect.data.Time", "time-millis"),
    ("long", "org.apache.kafka.connect.data.Timestamp", "timestamp-millis"),
)  # fmt: skip
PLACEHOLDERS: tuple[tuple[str, pa.DataType, Any], ...] = (
    ("`text`, `json`, `xml`, `CLOB`", pa.string(), "?"),
    ("`bytea`, `BLOB`", pa.binary(), b"?"),
    ("`bytea` with `binary.handling.mode=base64`", pa.string(), "Pw=="),
    ("`bytea` with `binary.handling.mode=hex`", pa.string(), "3f"),
    ("`hstore`", pa.string(), '{"?":"?"}'),
    ("`hstore` with `hstore.handling.mode=map`", pa.map_(pa.string(), pa.string()), [("?", "?")]),
    ("`text[]`, `varchar[]`, `json[]`", pa.list_(pa.string()), ["?"]),
    ("`bytea[]`", pa.list_(pa.binary()), [b"?"]),
    ("`uuid[]`", pa.list_(pa.string()), ["d1457b72-c3fb-323a-a671-125aef3eab5d"]),
    ("`integer[]`", pa.list_(pa.int32()), [63]),
    ("`bigint[]`", pa.list_(pa.int64()), [63]),
    ("`double precision[]`", pa.list_(pa.float64()), [63.0]),
    ("`date[]`", pa.list_(pa.date32()), [date(1970, 3, 5)]),
    ("`boolean[]`", pa.list_(pa.bool_()), [True]),
    ("`geometry`", pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]), {"wkb": b"?", "srid": 4326}),
)
_SCALARS = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
            "sfixed32", "sfixed64", "bool", "string", "bytes")  # fmt: skip
WELL_KNOWN_FILES = {
    "Timestamp": "timestamp", "Duration": "duration", "StringValue": "wrappers", "Int64Value": "wrappers",
    "BoolValue": "wrappers", "Struct": "struct", "Value": "struct", "ListValue": "struct", "Any": "any",
    "Empty": "empty", "FieldMask": "field_mask",
}  # fmt: skip
"""File of each of Google's well-known types."""
PROTO: tuple[tuple[str, Sequence[str]], ...] = (
    ('syntax = "proto3";', (
        *_SCALARS, "optional int32", "repeated int32", "E", "M", "map<string, int32>", "oneof int32",
        *(f"google.protobuf.{name}" for name in WELL_KNOWN_FILES),
    )),
    ('syntax = "proto2";', ("required int32", "optional int32", "repeated int32", "optional E", "group", "extension")),
    ('edition = "2023";', ("int32", "repeated int32", "E", "M")),
)  # fmt: skip

_PROTO_NOTES = {
    "google.protobuf.Duration": "Delta refuses this type: leave the column out by `ingest.select`",
    "google.protobuf.Empty": "a message without fields has no column",
    "extension": "has no column, as in Spark",
}


def render() -> dict[str, str]:
    """Return the tables as Markdown, by name."""
    return {
        "json schema features": _table("JSON Schema", ((_code(schema), _json(schema), why) for schema, why in JSON)),
        "avro features": _table("Avro", ((_code(each), _avro(each, given), why) for each, why, given in AVRO)),
        "named types": _named_types(),
        "placeholders": _placeholders(),
        "protobuf features": _table("Protobuf", _protobuf_rows()),
    }


def _table(title: str, rows: Iterable[tuple[str, str, str]]) -> str:
    return markdown((title, "Column", "Notes"), ([each.replace("|", "\\|") for each in row] for row in rows))


def _code(schema: Any) -> str:
    return f"`{json.dumps(schema)}`"


def _shown(kind: Callable[[], pa.DataType]) -> str:
    try:
        return f"`{_type_text(kind())}`"
    except (ConfigurationError, UnsupportedDataError) as error:
        return f"refused: {error}"


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{each.name}: {_type_text(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
    return f"DECIMAL({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else _NAMES[kind]


def _json(schema: Any) -> str:
    text = json.dumps({"properties": {"x": schema}, "$defs": {"d": _B}})
    return _shown(lambda: json_schema_kind(text).field("x").type)


def _avro(schema: Any, columns: AvroColumns) -> str:
    return _shown(lambda: arrow_type(parse_avro_schema(json.dumps(schema), columns=columns)))


def _named_types() -> str:
    rows = []
    for kind, name, logical in NAMED:
        schema = {"type": kind, "connect.name": name} | ({"logicalType": logical} if logical else {})
        shown = [_avro(schema, AvroColumns(has_named_times=given)) for given in (False, True)]
        rows.append((f"`{name}`", *shown))
    return markdown(("Name of the type", "Column", "Column with `ingest.times=schema`"), rows)


def _placeholders() -> str:
    rows = []
    finder = UnavailableValues("?", ())
    for name, kind, value in PLACEHOLDERS:
        found = finder.of(pa.RecordBatch.from_pydict({"x": pa.array([value], kind)}))[0].is_valid
        text = json.dumps(value, default=lambda each: f"X'{each.hex()}'" if isinstance(each, bytes) else str(each))
        rows.append((name, f"`{_type_text(kind)}`", f"`{text}`", "the row keeps its value" if found else "lands"))
    return markdown(("Column of the database", "Column", "Placeholder", ""), rows)


def _protobuf_rows() -> Iterator[tuple[str, str, str]]:
    for head, kinds in PROTO:
        known = (WELL_KNOWN_FILES[kind[16:]] for kind in kinds if kind.startswith("google"))
        imports = {f'import "google/protobuf/{name}.proto";' for name in known}
        label = "optional " if "proto2" in head else ""
        messages = [f"message X{at} {{ {_declared(kind, at)} }}" for at, kind in enumerate(kinds)]
        others = f"enum E {{ Z = 0; }} message M {{ {label}int32 a = 1; }}"
        descriptors = compiled_proto({"x.proto": "\n".join([head, *sorted(imports), others, *messages])})
        for at, kind in enumerate(kinds):
            shown = _shown(partial(_field_kind, descriptors, f"X{at}"))
            yield f"{head.split(chr(34))[1]}: `{kind}`", shown, _PROTO_NOTES.get(kind, "")


def _declared(kind: str, at: int) -> str:
    match kind:
        case "oneof int32":
            return "oneof o { int32 x = 1; }"
        case "group":
            return "optional group X = 1 { optional int32 a = 2; }"
        case "extension":
            return f"extensions 1; extend X{at} {{ optional int32 x = 1; }}"
    return f"{kind} x = 1;"


def _field_kind(descriptors: bytes, message: str) -> pa.DataType:
    kind = ProtobufDecoder(descriptors, message).kind
    return kind.field(0).type if kind.num_fields else pa.null()  # a message without fields has no column
