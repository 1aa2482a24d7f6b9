"""JSON documents that name their JSON Schema in a registry."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.formats.scripted_registry import HEADER, ScriptedRegistry, framed, headers_of, with_guid
from tiered_stream.formats.columns.decoded import Decoded
from tiered_stream.formats.registry.registry_json import RegistryJsonDecoder
from tiered_stream.formats.registry.writer_schemas import NOT_FRAMED
from tiered_stream.formats.rows.row_choices import Evolution

ONE = UUID(int=1)
KIND = pa.struct([("a", pa.int64()), ("b", pa.string())])


def schema_of(title: str = "Order", **properties: str) -> dict[str, Any]:
    listed = {name: {"type": kind} for name, kind in properties.items()}
    text = json.dumps({"type": "object", "title": title, "properties": listed})
    return {"schema": text, "schemaType": "JSON"}


@pytest.fixture
def registry(registry: ScriptedRegistry) -> ScriptedRegistry:
    registry.schemas[1] = schema_of(a="integer", b="string")
    registry.schemas[2] = schema_of(a="integer", c="number")
    registry.schemas[3] = {"schema": '"int"'}
    return registry


def decode(
    registry: ScriptedRegistry, *values: bytes | None, headers: list[bytes | None] | None = None,
    kind: pa.StructType = KIND, record: str = "", evolution: Evolution = Evolution.NONE,
) -> Decoded:  # fmt: skip
    decoder = RegistryJsonDecoder(registry.settings, kind, record=record, evolution=evolution, header=HEADER)
    decoded = decoder.decode(pa.array(values, pa.binary()), headers and headers_of(headers))
    decoded.column.validate(full=True)
    assert decoder.kind == decoded.column.type
    return decoded


def test_documents_are_read_without_what_is_in_front_of_them(registry: ScriptedRegistry) -> None:
    decoded = decode(registry, framed(1, b'{"a":1,"b":"x"}'), None, framed(2, b'{"a":2,"c":0.5}'))
    assert decoded.reasons == {}
    assert decoded.column.to_pylist() == [{"a": 1, "b": "x"}, None, {"a": 2, "b": None}]


def test_documents_whose_schema_is_in_a_header_are_read_whole(registry: ScriptedRegistry) -> None:
    registry.guids[str(ONE)] = registry.schemas[1]
    values = b'{"a":1,"b":"x"}', framed(1, b'{"a":2}'), None
    decoded = decode(registry, *values, headers=[with_guid(ONE), None, with_guid(ONE)])
    assert decoded.reasons == {}
    assert decoded.column.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}, None]
    assert sorted(registry.asked) == [f"/schemas/guids/{ONE}", "/schemas/ids/1"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a":1}', NOT_FRAMED),
        (framed(9, b'{"a":1}'), "the schema registry has no schema 9"),
        (framed(3, b'{"a":1}'), "schema 3 is of the format AVRO, not JSON"),
        (framed(1, b'{"a":"x"}'), "a"),
        (framed(1, b""), ""),
    ],
)
def test_what_is_no_document_of_a_schema_gets_a_reason(registry: ScriptedRegistry, value: bytes, why: str) -> None:
    decoded = decode(registry, framed(1, b'{"a":1}'), value, framed(1, b'{"a":3}'))
    assert decoded.column.to_pylist() == [{"a": 1, "b": None}, None, {"a": 3, "b": None}]
    assert list(decoded.reasons) == [1] and why in decoded.reasons[1]


def test_documents_of_another_record_are_no_rows(registry: ScriptedRegistry) -> None:
    registry.schemas[4] = schema_of("Payment", a="integer")
    decoded = decode(registry, framed(4, b'{"a":1}'), framed(1, b'{"a":2}'), record="Order")
    assert decoded.column.to_pylist() == [None, {"a": 2, "b": None}]
    assert decoded.reasons == {0: "schema 4 is of 'Payment', not 'Order'"}


@pytest.mark.parametrize("evolution", [Evolution.ADD, Evolution.WIDEN])
def test_a_column_grows_by_the_fields_of_writers_schemas(registry: ScriptedRegistry, evolution: Evolution) -> None:
    decoded = decode(registry, framed(1, b'{"a":1}'), framed(2, b'{"a":2,"c":0.5}'), evolution=evolution)
    assert decoded.column.to_pylist() == [{"a": 1, "b": None, "c": None}, {"a": 2, "b": None, "c": 0.5}]
    assert decode(registry, framed(2, b'{"a":2,"c":0.5}')).column.to_pylist() == [{"a": 2, "b": None}]


def test_numbers_of_documents_widen_a_given_type(registry: ScriptedRegistry) -> None:
    values = framed(1, b'{"a":1}'), framed(1, b'{"a":5000000000}')
    decoded = decode(registry, *values, kind=pa.struct([("a", pa.int32())]), evolution=Evolution.WIDEN)
    assert [row["a"] for row in decoded.column.to_pylist()] == [1, 5_000_000_000]
