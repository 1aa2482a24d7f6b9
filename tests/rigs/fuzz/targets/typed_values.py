"""Values that become columns, Avro's and protobuf's, and the schemas that say which columns."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2

from tests.formats.avro_cases import Schemas, avro_decoder, encoded, in_column, value
from tests.rigs.fuzz.mutation import below, one, spoiled, spoiled_json
from tests.rigs.fuzz.target import MIB, Target
from tiered_stream.formats.avro.avro_decoder import AvroDecoder
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder

SCHEMAS = 40


@cache
def avro(number: int) -> tuple[Any, AvroDecoder, bytes, Any]:
    """A schema, its decoder, and a value: its bytes, and what a column has of it."""
    random = Random(number)
    schema = Schemas(random).record()
    good = encoded(schema, value(random, schema))
    return schema, avro_decoder(json.dumps(schema)), good, in_column(schema, good)


def avro_value(random: Random) -> bytes:
    """A schema's number, and a value of it."""
    chosen = below(random, SCHEMAS)
    schema = avro(chosen)[0]
    made, other = (encoded(schema, value(random, schema)) for _ in range(2))
    return bytes([chosen]) + (spoiled(random, made, (other,)) if random.random() < 0.9 else made)


def decode_avro(data: bytes) -> None:
    _, decoder, good, row = avro((data[0] if data else 0) % SCHEMAS)
    decoded = decoder.decode(pa.array([good, data[1:], None, good], pa.binary()))
    decoded.column.validate(full=True)
    # What comes with a value makes no difference to it.
    assert [decoded.column[at].as_py() for at in (0, 2, 3)] == [row, None, row]
    assert set(decoded.reasons) <= {1}


def avro_schema(random: Random) -> bytes:
    made = Schemas(random)
    schema = made.record()
    default = {
        "name": "d",
        "type": made.any(2),
        "default": one(random, (None, 0, "", [], {}, [1], {"a": 1})),
    }
    reader = {**schema, "fields": [*schema["fields"][1:], default]}
    return spoiled_json(random, [schema, reader]) if random.random() < 0.9 else json.dumps([schema, reader]).encode()


def read_avro_schema(data: bytes) -> None:
    try:
        written, wanted = map(json.dumps, json.loads(data))
    except (ValueError, TypeError, RecursionError):
        written = wanted = data.decode(errors="replace")
    decoded = avro_decoder(written, wanted).decode(pa.array([b"", bytes(40), b"\2" * 40], pa.binary()))
    decoded.column.validate(full=True)


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3", package="p")
    order, line = (file.message_type.add(name=name) for name in ("Order", "Line"))
    for at, kind in enumerate((1, 2, 3, 4, 5, 8, 9, 12, 13, 15, 17, 18)):
        order.field.add(name=f"f{at}", number=at + 1, type=kind, label=1)
        order.field.add(name=f"r{at}", number=at + 101, type=kind, label=3)
    line.field.add(name="a", number=1, type=5, label=1)
    order.field.add(name="line", number=200, type=11, type_name=".p.Line", label=1)
    order.field.add(name="lines", number=201, type=11, type_name=".p.Line", label=3)
    return descriptor_pb2.FileDescriptorSet(file=[file])


@cache
def protobuf() -> ProtobufDecoder:
    return ProtobufDecoder(descriptors().SerializeToString(), "p.Order")


def decode_protobuf(data: bytes) -> None:
    decoded = protobuf().decode(pa.array([b"", data, b"\xc2\x0c\x00"], pa.binary()))
    decoded.column.validate(full=True)
    assert decoded.column[2]["line"].as_py() == {"a": None}
    assert set(decoded.reasons) <= {1}


def message(random: Random) -> bytes:
    made = b"".join(one(random, _FIELDS) for _ in range(below(random, 8)))
    return spoiled(random, made) if random.random() < 0.9 else made


_FIELDS = (
    b"\x09" + bytes(8), b"\x15\0\0\x80\x3f", b"\x18\x05", b"\x3a\x03abc", b"\x40\x01", b"\xaa\x06\x03\x01\x02\x03",
    b"\xaa\x06\x00", b"\xa8\x06\x01", b"\xc2\x0c\x02\x08\x05", b"\xca\x0c\x02\x08\x05", b"\xca\x0c\x00",
)  # fmt: skip


def read_descriptors(data: bytes) -> None:
    ProtobufDecoder(data, "p.Order").decode(pa.array([b"\x18\x05"], pa.binary()))


TARGETS = (
    Target("avro-values", avro_value, decode_avro, memory=256 * MIB),
    Target("avro-schemas", avro_schema, read_avro_schema, memory=256 * MIB),
    Target("protobuf-values", message, decode_protobuf, memory=256 * MIB),
    Target("descriptor-sets", lambda random: spoiled(random, descriptors().SerializeToString()), read_descriptors),
)
