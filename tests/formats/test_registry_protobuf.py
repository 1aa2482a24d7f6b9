"""Messages that name their schema, and which message of it they are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.formats.avro_cases import varint
from tests.formats.scripted_registry import ScriptedRegistry
from tiered_stream.formats.proto_compiler import compiled_proto
from tiered_stream.formats.registry_connection import RegistrySettings
from tiered_stream.formats.registry_protobuf import RegistryProtobufDecoder
from tiered_stream.formats.writer_schemas import NOT_FRAMED

ONE = 'syntax = "proto3"; package p; message Order { int32 a = 1; string b = 2; message Line { int32 x = 1; } }'
TWO = 'syntax = "proto3"; package p; import "z.proto"; message Other {} message Order { int32 a = 1; Z z = 3; }'
OTHER = 'syntax = "proto3"; package p; message Z {}'


@pytest.fixture
def decoder() -> Iterator[RegistryProtobufDecoder]:
    with ScriptedRegistry() as server:
        server.schemas[1] = {"schema": ONE, "schemaType": "PROTOBUF"}
        reference = {"name": "z.proto", "subject": "z", "version": 1}
        server.schemas[2] = {"schema": TWO, "schemaType": "PROTOBUF", "references": [reference]}
        server.versions["z", "1"] = {"schema": OTHER, "schemaType": "PROTOBUF"}
        server.schemas[3] = {"schema": "message {", "schemaType": "PROTOBUF"}
        server.schemas[4] = {"schema": '"int"'}
        settings = RegistrySettings.parse({"url": server.url})
        yield RegistryProtobufDecoder(settings, compiled_proto({"o.proto": ONE}), "p.Order")


def framed(schema_id: int, *indexes: int) -> bytes:
    said = b"".join(map(varint, (len(indexes), *indexes))) if indexes else b"\0"
    return b"\0" + schema_id.to_bytes(4) + said + b"\x08\x05"


def test_messages_are_read_whatever_schema_they_were_written_by(decoder: RegistryProtobufDecoder) -> None:
    values = [framed(1), framed(2, 1), None, framed(1, 0), framed(2, 1)]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    row = {"a": 5, "b": None}
    assert decoded.reasons == {}
    assert decoded.column.to_pylist() == [row, row, None, row, row]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (framed(2), "the value is a message p.Other, not p.Order"),
        (framed(1, 0, 0), "the value is a message p.Order.Line, not p.Order"),
        (framed(1, 7), "schema 1 has no message [7]"),
        (framed(1, -1), "schema 1 has no message [-1]"),
        (framed(3), "schema 3: a .proto file cannot be compiled"),
        (framed(4), "schema 4 is of the format AVRO, not PROTOBUF"),
        (framed(9), "the schema registry has no schema 9"),
        (framed(1)[:5], "behind the schema's id the value does not say"),
        (framed(1)[:5] + b"\x02", "behind the schema's id the value does not say"),
        (framed(1)[:5] + varint(1 << 40), "behind the schema's id the value does not say"),
        (framed(1)[:5] + varint(100) + bytes(200), "behind the schema's id the value does not say"),
        (framed(1)[:5] + b"\xff" * 20, "behind the schema's id the value does not say"),
        (b"\1" + framed(1)[1:], NOT_FRAMED),
        (b"", NOT_FRAMED),
        (framed(1) + b"\x08", "the value is no message p.Order"),
    ],
)
def test_what_is_not_the_message_gets_a_reason(decoder: RegistryProtobufDecoder, value: bytes, why: str) -> None:
    decoded = decoder.decode(pa.array([framed(1), value, framed(1)], pa.binary()))
    assert decoded.column.to_pylist() == [{"a": 5, "b": None}, None, {"a": 5, "b": None}]
    assert list(decoded.reasons) == [1] and why in decoded.reasons[1]
