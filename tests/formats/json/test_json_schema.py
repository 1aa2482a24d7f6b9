"""A JSON Schema becomes a struct of columns, or is refused by what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json.json_schema import json_schema_kind


def kind_of(schema: Any, **more: Any) -> pa.DataType:
    """The type of a property."""
    return json_schema_kind(orjson.dumps({"type": "object", "properties": {"x": schema}, **more})).field("x").type


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, pa.string()),
        ({"type": "string", "format": "date-time"}, pa.timestamp("us", tz="UTC")),
        ({"type": "string", "format": "date"}, pa.date32()),
        ({"type": "string", "format": "email"}, pa.string()),
        ({"type": "string", "contentEncoding": "base64"}, pa.binary()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": ["null", "integer"]}, pa.int64()),
        ({"type": ["number", "integer"]}, pa.float64()),
        ({"type": ["string", "integer"]}, pa.string()),
        ({"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]}, pa.date32()),
        ({"oneOf": [{"type": "string"}, {"type": "object"}]}, pa.string()),
        ({"type": "array", "items": {"type": "integer"}}, pa.list_(pa.field("element", pa.int64()))),
        ({"type": "array"}, pa.list_(pa.field("element", pa.string()))),
        ({"type": "array", "prefixItems": [{}]}, pa.string()),
        ({"type": "object", "additionalProperties": {"type": "number"}}, pa.map_(pa.string(), pa.float64())),
        ({"type": "object"}, pa.string()),
        ({"properties": {"a": {"type": "boolean"}}, "required": ["a"]}, pa.struct([("a", pa.bool_())])),
        ({"enum": ["a", "b", None]}, pa.string()),
        ({"const": 1}, pa.int64()),
        ({}, pa.string()),
        (True, pa.string()),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}]},
         pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ],
)  # fmt: skip
def test_a_property_has_the_type_of_its_values(schema: Any, kind: pa.DataType) -> None:
    assert kind_of(schema) == kind


def test_a_reference_is_followed_within_the_document() -> None:
    assert kind_of({"$ref": "#/$defs/a~1b/1"}, **{"$defs": {"a/b": [{}, {"type": "integer"}]}}) == pa.int64()
    assert kind_of({"$ref": "#/definitions/a%20b"}, definitions={"a b": {"type": "boolean"}}) == pa.bool_()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "#/$defs/none"}, "#/\\$defs/none"),
        ({"$ref": "https://example.com/other.json"}, "property x: it refers to .*: put that schema into it"),
        ({"$ref": "http://[/other.json"}, "put that schema into it"),
        ({"$ref": "#a"}, "property x: it refers to the anchor '#a'"),
        ({"$ref": 3}, "property x: \\$ref is '3'"),
        ({"$dynamicRef": "#node"}, "property x: \\$dynamicRef is not followed"),
        ({"properties": {"y": {"type": "array", "items": {"type": "text"}}}}, "property x.y.items: there is no type"),
        ({"type": "text"}, "'text'"),
        ({"type": [["a"]]}, "type"),
        ({"anyOf": []}, "'anyOf'"),
        (["a"], "is an object"),
        ({"properties": []}, "`properties`"),
    ],
)
def test_what_no_column_can_be_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        kind_of(schema)


def test_a_reference_to_another_schema_is_followed_in_that_schema() -> None:
    line = {
        "$id": "https://x/line.json",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "integer"}},
    }
    common = {"$defs": {"day": {"type": "string", "format": "date"}, "line": {"$ref": "line.json"}}}
    order = {"$id": "https://x/order.json", "properties": {
        "line": {"$ref": "line.json"}, "day": {"$ref": "common.json#/$defs/day"},
        "again": {"$ref": "common.json#/$defs/line"}, "self": {"$ref": "order.json#/properties/day"},
    }}  # fmt: skip
    references = {"line.json": json.dumps(line), "common.json": json.dumps(common)}
    struct = pa.struct([("n", pa.int64())])
    assert json_schema_kind(json.dumps(order), references) == pa.struct(
        [("line", struct), ("day", pa.date32()), ("again", struct), ("self", pa.date32())]
    )


def test_schemas_that_refer_to_each_other_without_an_end_are_refused() -> None:
    references = {"a": '{"$ref": "b"}', "b": '{"$ref": "a"}'}
    with pytest.raises(ConfigurationError, match="property x: it goes deeper than 64 levels, or refers to itself"):
        json_schema_kind('{"properties": {"x": {"$ref": "a"}}}', references)


def test_a_small_text_is_no_bomb() -> None:
    levels = {f"d{at}": {"properties": {name: {"$ref": f"#/$defs/d{at + 1}"} for name in "ab"}} for at in range(25)}
    with pytest.raises(ConfigurationError, match="more than 10000 types when written out"):
        kind_of({"$ref": "#/$defs/d0"}, **{"$defs": {**levels, "d25": {"type": "string"}}})


@pytest.mark.parametrize(
    "text", [b" " * (5 << 20), b"", b"{", b'{"type":"array"}', b'{"type":"object"}', b"true", b"1"]
)
def test_a_schema_is_one_of_objects(text: bytes) -> None:
    with pytest.raises(ConfigurationError):
        json_schema_kind(text)
