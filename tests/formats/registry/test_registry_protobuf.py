"""Messages that name their schema, and which message of it they are."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from uuid import UUID

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.formats.avro_cases import varint
from tests.formats.scripted_registry import HEADER, ScriptedRegistry, framed, headers_of, with_guid
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.protobuf import proto_compiler
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tiered_stream.formats.registry.registry_protobuf import RegistryProtobufDecoder, registered_descriptors
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, schema_registry
from tiered_stream.formats.registry.writer_schemas import NOT_FRAMED

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
ONE = 'syntax = "proto3"; package p; message Order { int32 a = 1; string b = 2; message Line { int32 x = 1; } }'
TWO = 'syntax = "proto3"; package p; import "z.proto"; message Other {} message Order { int32 a = 1; Z z = 3; }'
OTHER = 'syntax = "proto3"; package p; message Z {}'


def schema_of(text: str, **more: object) -> dict[str, object]:
    return {"schema": text, "schemaType": "PROTOBUF", **more}


IMPORTING = {"references": [{"name": "z.proto", "subject": "z", "version": 1}]}


@pytest.fixture
def decoder(registry: ScriptedRegistry) -> RegistryProtobufDecoder:
    registry.schemas[1] = schema_of(ONE)
    registry.schemas[2] = schema_of(TWO, **IMPORTING)
    registry.versions["z", "1"] = schema_of(OTHER)
    registry.schemas[3] = schema_of("message {")
    registry.schemas[4] = {"schema": '"int"'}
    registry.schemas[5] = schema_of(TWO, references=[{**IMPORTING["references"][0], "name": ""}])
    return RegistryProtobufDecoder(registry.settings, compiled_proto({"o.proto": ONE}), "p.Order", header=HEADER)


def message(schema_id: int, *indexes: int) -> bytes:
    said = b"".join(map(varint, (len(indexes), *indexes))) if indexes else b"\0"
    return framed(schema_id, said + b"\x08\x05")


def test_messages_are_read_whatever_schema_they_were_written_by(decoder: RegistryProtobufDecoder) -> None:
    values = [message(1), message(2, 1), None, message(1, 0), message(2, 1)]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    row = {"a": 5, "b": None}
    assert decoded.reasons == {}
    assert decoded.column.to_pylist() == [row, row, None, row, row]


def test_a_schema_at_which_the_compiler_takes_too_long_costs_its_own_values(
    decoder: RegistryProtobufDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proto_compiler, "_COMPILE_SECONDS", 0)
    assert "not compiled within 0 seconds" in decoder.decode(pa.array([message(1)], pa.binary())).reasons[0]


def test_without_the_compiler_nothing_is_decoded(registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = compiled_proto({"o.proto": ONE})
    monkeypatch.setattr(proto_compiler, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="grpcio-tools"):
        RegistryProtobufDecoder(registry.settings, descriptors, "p.Order")


def serialized(name: str, text: str, **others: str) -> str:
    files = FileDescriptorSet.FromString(compiled_proto({**others, name: text})).file
    return b64encode(next(file for file in files if file.name == name).SerializeToString()).decode()


@pytest.mark.parametrize("both", [True, False])
def test_a_schema_may_be_a_descriptor_in_base64(registry: ScriptedRegistry, both: bool) -> None:
    registry.versions["z", "1"] = schema_of(serialized("z.proto", OTHER) if both else OTHER)
    two = serialized("two", TWO, **{"z.proto": OTHER})
    assert registered_message(registry, two, message(1, 1), **IMPORTING) == ({"a": 5}, {})


def test_an_import_may_have_two_names() -> None:
    z = OTHER.replace("{}", "{ int32 x = 1; }")
    order = 'syntax = "proto3"; package p; import "a.proto"; import "b.proto"; message Order { Z z = 1; }'
    schema = RegisteredSchema("PROTOBUF", order, (("a.proto", z), ("b.proto", z)))
    assert ProtobufDecoder(registered_descriptors(schema), "p.Order").kind.names == ["z"]


def test_a_header_says_which_message_a_value_is(registry: ScriptedRegistry, decoder: RegistryProtobufDecoder) -> None:
    registry.guids[str(GUID)] = registry.schemas[2]
    headers = [with_guid(GUID, b"\2\2"), with_guid(GUID, b"\0"), with_guid(GUID), None, b"\0\0\0\0\1\0"]
    values = [b"\x08\x05"] * 3 + [message(1), b"\x08\x05"]
    decoded = decoder.decode(pa.array(values, pa.binary()), headers_of(headers))
    row = {"a": 5, "b": None}
    assert decoded.column.to_pylist() == [row, None, None, row, row]
    assert decoded.reasons == {
        1: "the value is a message p.Other, not p.Order",
        2: "behind the schema's id the value does not say which message it is",
    }


KNOWN = """
syntax = "proto3"; package p;
import "confluent/meta.proto"; import "confluent/type/decimal.proto"; import "google/type/date.proto";
import "google/type/interval.proto"; import "google/protobuf/timestamp.proto";
message Order {
  option (confluent.message_meta).doc = "an order";
  int32 a = 1;
  confluent.type.Decimal price = 2 [(confluent.field_meta) = {params: [{key: "scale", value: "2"}]}];
  google.type.Date day = 3;
  google.type.Interval open = 4;
}
"""
KSQL = """
syntax = "proto3"; package p; import "confluent/type/decimal.proto";
message Order { int32 a = 1; confluent.type.Decimal d = 2 [(confluent.field_meta) = {tags: ["x"]}]; }
"""
LEGACY = """
syntax = "proto3"; package p; import "confluent/types/decimal.proto"; import "confluent/type/variant.proto";
message Order { int32 a = 1; confluent.type.Decimal d = 2; confluent.type.Variant v = 3; }
"""


def registered_message(
    registry: ScriptedRegistry, text: str, value: bytes, **more: object
) -> tuple[object, dict[int, str]]:
    """The row of a value whose schema is the newest of its subject, as the registry has it."""
    registry.schemas[1] = registry.versions["t-value", "latest"] = schema_of(text, **more)
    newest = registered_descriptors(schema_registry(registry.settings).latest("t-value"))
    decoded = RegistryProtobufDecoder(registry.settings, newest, "p.Order").decode(pa.array([value], pa.binary()))
    return decoded.column.to_pylist()[0], dict(decoded.reasons)


def test_types_that_a_registry_knows_need_no_references(registry: ScriptedRegistry) -> None:
    price, day, start = (
        b"\x12\x07\x0a\x01\x7b\x10\x03\x18\x02",
        b"\x1a\x05\x08\xea\x0f\x10\x0b",
        b"\x22\x04\x0a\x02\x08\x01",
    )
    row, reasons = registered_message(registry, KNOWN, message(1) + price + day + start)
    assert reasons == {}
    assert row == {
        "a": 5, "price": {"value": b"{", "precision": 3, "scale": 2},
        "day": {"year": 2026, "month": 11, "day": None},
        "open": {"start_time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "end_time": None},
    }  # fmt: skip


@pytest.mark.parametrize(("text", "names"), [(KSQL, ["a", "d"]), (LEGACY, ["a", "d", "v"])])
def test_decimals_are_known_as_ksqldb_and_older_clients_import_them(
    registry: ScriptedRegistry, text: str, names: list[str]
) -> None:
    row, reasons = registered_message(registry, text, message(1))
    assert (reasons, row) == ({}, {"a": 5} | dict.fromkeys(names[1:]))


def test_every_file_that_a_registry_knows_can_be_imported() -> None:
    known = ["calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval",
             "latlng", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"]  # fmt: skip
    imports = "".join(f'import "google/type/{name}.proto"; ' for name in known)
    assert compiled_proto({"a.proto": f'syntax = "proto3"; {imports} message A {{ google.type.Money m = 1; }}'})


def test_a_file_that_is_listed_as_a_reference_comes_before_the_known_one() -> None:
    own = 'syntax = "proto3"; package confluent.type; message Decimal { string text = 1; }'
    name = "confluent/type/decimal.proto"
    text = f'syntax = "proto3"; package p; import "{name}"; message Order {{ confluent.type.Decimal d = 2; }}'
    found = ProtobufDecoder(compiled_proto({name: own, "order.proto": text}), "p.Order").kind
    assert found == pa.struct([("d", pa.struct([("text", pa.string())]))])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (message(2), "the value is a message p.Other, not p.Order"),
        (message(1, 0, 0), "the value is a message p.Order.Line, not p.Order"),
        (message(1, 7), "schema 1 has no message [7]"),
        (message(1, -1), "schema 1 has no message [-1]"),
        (message(3), "schema 3: a .proto file cannot be compiled"),
        (message(4), "schema 4 is of the format AVRO, not PROTOBUF"),
        (message(5), "schema 5: ''"),
        (message(9), "the schema registry has no schema 9"),
        (message(1)[:5], "behind the schema's id the value does not say"),
        (message(1)[:5] + b"\x02", "behind the schema's id the value does not say"),
        (message(1)[:5] + varint(1 << 40), "behind the schema's id the value does not say"),
        (message(1)[:5] + varint(100) + bytes(200), "behind the schema's id the value does not say"),
        (message(1)[:5] + b"\xff" * 20, "behind the schema's id the value does not say"),
        (b"\1" + message(1)[1:], NOT_FRAMED),
        (b"", NOT_FRAMED),
        (message(1) + b"\x08", "the value is no message p.Order"),
    ],
)
def test_what_is_not_the_message_gets_a_reason(decoder: RegistryProtobufDecoder, value: bytes, why: str) -> None:
    decoded = decoder.decode(pa.array([message(1), value, message(1)], pa.binary()))
    assert decoded.column.to_pylist() == [{"a": 5, "b": None}, None, {"a": 5, "b": None}]
    assert list(decoded.reasons) == [1] and why in decoded.reasons[1]
