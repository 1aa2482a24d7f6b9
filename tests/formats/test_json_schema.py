"""A JSON Schema becomes a struct of columns, or is refused by what is wrong with it."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json_schema import json_schema_kind


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
        ({"$ref": "https://example.com/other.json"}, "put that schema into it"),
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


@pytest.mark.parametrize("text", [b"", b"{", b'{"type":"array"}', b'{"type":"object"}', b"true", b"1"])
def test_a_schema_is_one_of_objects(text: bytes) -> None:
    with pytest.raises(ConfigurationError):
        json_schema_kind(text)
