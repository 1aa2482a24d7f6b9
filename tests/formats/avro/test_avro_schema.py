"""Schemas are trees without cycles, small, and have the types that Spark gives them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.formats.avro_cases import record
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.avro.avro_schema import parse_avro_schema
from tiered_stream.formats.avro.avro_types import arrow_type


def kind(schema: Any, *referenced: Any) -> pa.DataType:
    return arrow_type(parse_avro_schema(json.dumps(schema), [json.dumps(each) for each in referenced]))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("null", pa.null()),
        ({"type": "string"}, pa.string()),
        ({"type": {"type": "int"}}, pa.int32()),
        ({"type": "long", "logicalType": "date"}, pa.int64()),
        ({"type": "fixed", "name": "f", "size": 27, "logicalType": "decimal", "precision": 64}, pa.decimal128(38, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}, pa.binary()),
        ({"type": "bytes", "logicalType": "decimal"}, pa.binary()),
        ({"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 9}, pa.decimal128(9, 0)),
        ({"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 10}, pa.binary()),
        ({"type": "fixed", "name": "f", "size": 16, "logicalType": "decimal", "precision": 2**62}, pa.binary()),
        (["int"], pa.int32()),
        (["long", "null", "int"], pa.int64()),
        (["int", "null", "string"], pa.struct([("member0", pa.int32()), ("member1", pa.string())])),
    ],
)
def test_types_are_those_of_spark(schema: Any, expected: pa.DataType) -> None:
    assert kind(schema) == expected


def test_named_types_are_found_by_their_namespace() -> None:
    inner = {"type": "enum", "name": "e", "symbols": ["A"]}
    schema = record(("a", inner), ("b", "e"), ("c", "x.e"))
    expected = pa.struct([(name, pa.string()) for name in "abc"])
    assert kind({**schema, "namespace": "x"}) == kind({**schema, "name": "x.r"}) == expected


def test_a_schema_may_use_those_that_it_refers_to() -> None:
    other = {**record(("a", "int")), "name": "x.other"}
    expected = pa.list_(pa.field("element", pa.struct([("a", pa.int32())])))
    assert kind({"type": "array", "items": "x.other"}, other) == expected


def bomb() -> list[Any]:
    """Small, and 2 ** 40 types when it is written out."""
    made: list[Any] = [{"type": "record", "name": "r0", "fields": []}]
    for at in range(40):
        fields = [{"name": name, "type": f"r{at}"} for name in "ab"]
        made.append({"type": "record", "name": f"r{at + 1}", "fields": fields})
    return made


def nested(levels: int) -> Any:
    schema: Any = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("nothing", "there is no Avro type 'nothing'"),
        ([], "a union is empty"),
        (["int", "int"], "the same type twice"),
        (["int", ["null", "string"]], "has a union"),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]}, "r holds itself; recursive types"),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}] * 2}, "has a field twice"),
        ({"type": "record", "name": "r", "fields": [3]}, "this is no field: 3"),
        ({"type": "record", "name": "r"}, "has no list of fields"),
        ({"type": "record", "name": "a b", "fields": []}, "'a b' is no name"),
        ({"type": "record", "name": "a b", "namespace": "x-y", "fields": []}, "is no name .* in the namespace 'x-y'"),
        ({"type": "record", "name": "x.", "fields": []}, "'x.' is no name"),
        ({"type": "record", "name": "r", "namespace": 3, "fields": []}, "'3' is no namespace"),
        ({"type": "enum", "name": "e", "symbols": ["A", "A"]}, "no list of different symbols"),
        ({"type": "enum", "name": "e", "symbols": ["A"], "default": "B"}, "its default among them"),
        ({"type": "fixed", "name": "f", "size": -1}, "-1 is no size"),
        ({"type": "array"}, "this is no Avro type"),
        ({"type": "record", "name": "r", "fields": [{"name": "price", "type":
         {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 39}}]},
         "r.price: an Avro decimal with 39 digits after the point; DECIMAL has at most 38$"),
        (3, "this is no Avro type: 3"),
        (nested(65), "more than 64 levels"),
        (["null", *bomb()], "more than 10000 types when written out"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        kind(schema)


@pytest.mark.parametrize(
    "named",
    [{"name": "r", "namespace": "com.my-shop.2go"}, {"name": "com.my-shop.2go.r"}, {"name": "r-1", "namespace": None}],
)
def test_a_name_or_namespace_with_hyphens_is_read_as_by_other_readers(named: dict[str, Any]) -> None:
    inner = {"type": "enum", "name": "e-1", "symbols": ["A"]}
    fields = [{"name": "a-b", "type": inner}, {"name": "c", "type": "e-1"}]
    schema = {"type": "record", **named, "fields": fields}
    assert fastavro.schemaless_reader(io.BytesIO(b"\0\0"), fastavro.parse_schema(schema), None) == {
        "a-b": "A",
        "c": "A",
    }
    assert kind(schema) == pa.struct([("a-b", pa.string()), ("c", pa.string())])


def test_a_type_is_found_by_a_full_name_whose_namespace_has_a_hyphen() -> None:
    inner = {"type": "enum", "name": "e", "namespace": "my-shop", "symbols": ["A"]}
    assert kind(record(("a", inner), ("b", "my-shop.e"))).field("b").type == pa.string()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '"int' + "x" * (5 << 20)])
def test_any_text_is_a_schema_or_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_avro_schema(text)
