"""A JSON Schema becomes a struct of columns, or is refused by what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json.json_schema import json_schema_columns, json_schema_kind


def kind_of(schema: Any, **more: Any) -> pa.DataType:
    """The type of a property."""
    return json_schema_kind(orjson.dumps({"type": "object", "properties": {"x": schema}, **more})).field("x").type


A, B = ({"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}})
A_AND_B = pa.struct([("a", pa.int64()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"allOf": [{"$ref": "#/$defs/b"}], **A, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, A_AND_B),
        ({"allOf": [A, {**B, "anyOf": [{"required": ["b"]}]}]}, A_AND_B),
        ({"type": "object", **A, "oneOf": [{"type": "object"}, {"type": "null"}]}, pa.struct([("a", pa.int64())])),
        ({"type": "integer", "not": {"type": "string"}, "oneOf": [{"type": "number"}, {"const": 3.5}]}, pa.int64()),
        ({"type": "string", "format": "date", "anyOf": [{"pattern": "^2"}, {"enum": ["1999-01-01"]}]}, pa.date32()),
        ({"type": "string", "anyOf": [{"format": "date"}, {"format": "date-time"}]}, pa.string()),
        ({"type": ["string", "null"], "oneOf": [{"format": "date"}, {"type": "null"}]}, pa.date32()),
        ({"type": "string", "allOf": [{"format": "date"}]}, pa.date32()),
        ({"allOf": [{"type": "array"}, {"items": {"type": "integer"}}]}, pa.list_(pa.field("element", pa.int64()))),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, pa.int64()),
        ({"allOf": [{"$ref": "#/$defs/b"}, {"properties": {"b": {"maxLength": 3}}}]}, pa.struct([("b", pa.string())])),
        ({"allOf": [{"properties": {"x": A}}, {"properties": {"x": B}}]}, pa.struct([("x", A_AND_B)])),
        ({**A, "if": {"properties": {"a": {"const": 3}}}, "then": B, "else": {"required": ["a"]}}, A_AND_B),
        ({**A, "then": {"properties": {"a": {"type": "string"}}}}, pa.struct([("a", pa.int64())])),
        ({"properties": {"a": {}}, "then": {"properties": {"a": {"type": "integer"}}}},
         pa.struct([("a", pa.string())])),
        ({"type": "object", **A, "oneOf": [B, {"properties": {"a": {"const": 3}}}]}, A_AND_B),
        ({"allOf": [A, {"oneOf": [B, {"required": ["a"]}]}]}, A_AND_B),
        ({"enum": [1, {"a": 2}]}, pa.string()),
        ({"type": "object", "oneOf": [A, B]}, pa.string()),
        ({"anyOf": [{"type": "integer"}, {"minLength": 3}]}, pa.string()),
        ({"anyOf": [{"type": "object", **A}, {"type": "string"}]}, pa.string()),
        ({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "string", "format": "date"}]},
         pa.date32()),
    ],
)  # fmt: skip
def test_conditions_add_fields_and_never_change_a_declared_type(schema: Any, kind: pa.DataType) -> None:
    assert kind_of(schema, **{"$defs": {"b": B}}) == kind


def test_a_root_may_have_alternatives_of_its_properties() -> None:
    assert json_schema_kind(orjson.dumps({**A, "oneOf": [{"required": ["a"]}, B]})) == A_AND_B
    with pytest.raises(ConfigurationError, match="write the properties of all alternatives into `properties`"):
        json_schema_kind(orjson.dumps({"oneOf": [A, B]}))


def test_the_log_names_columns_that_are_text_because_of_a_union(caplog: pytest.LogCaptureFixture) -> None:
    union = {"type": ["integer", "boolean"]}
    with caplog.at_level("INFO", "tiered_stream"):
        json_schema_columns(orjson.dumps({"properties": {
            "id": {"type": "string"}, "lines": {"type": "array", "items": {"properties": {"no": union}}},
            "any": {}, "of": {"oneOf": [A, B]},
        }}))  # fmt: skip
    assert [record.args for record in caplog.records] == [("lines[].no",), ("of",)]


def test_a_reference_is_followed_within_the_document() -> None:
    assert kind_of({"$ref": "#/$defs/a~1b/1"}, **{"$defs": {"a/b": [{}, {"type": "integer"}]}}) == pa.int64()
    assert kind_of({"$ref": "#/definitions/a%20b"}, definitions={"a b": {"type": "boolean"}}) == pa.bool_()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#/$defs/none"}, "#/\\$defs/none"),
        ({"$ref": "https://example.com/other.json"}, "property x: it refers to .*: put that schema into it"),
        ({"$ref": "http://[/other.json"}, "put that schema into it"),
        ({"$ref": 3}, "property x: \\$ref is '3'"),
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
    with pytest.raises(ConfigurationError, match="property x: .*64 levels"):
        json_schema_kind('{"properties": {"x": {"$ref": "a"}}}', references)


def test_a_small_text_is_no_bomb() -> None:
    levels = {f"d{at}": {"properties": {name: {"$ref": f"#/$defs/d{at + 1}"} for name in "ab"}} for at in range(25)}
    with pytest.raises(ConfigurationError, match="10000 types"):
        kind_of({"$ref": "#/$defs/d0"}, **{"$defs": {**levels, "d25": {"type": "string"}}})


def test_alternatives_with_the_same_deep_properties_are_joined_once_at_each_level() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    kind: pa.DataType = pa.int64()
    for _ in range(50):
        schema, kind = {"properties": {"a": schema}}, pa.struct([("a", kind)])
    assert kind_of({"anyOf": [schema, schema]}) == kind


@pytest.mark.parametrize(
    "text", [b" " * (5 << 20), b"", b"{", b'{"type":"array"}', b'{"type":"object"}', b"true", b"1"]
)
def test_a_schema_is_one_of_objects(text: bytes) -> None:
    with pytest.raises(ConfigurationError):
        json_schema_kind(text)
