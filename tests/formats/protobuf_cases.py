"""Made-up messages of protobuf, and messages of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

from google.protobuf import message_factory

from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_schema import message_descriptor

FIELDS = (
    "int64 id = 1;", "uint32 small = 2;", "uint64 large = 3;", "sint32 signed = 4;", "fixed64 fixed = 5;",
    "bool paid = 6;", "float rate = 7;", "double amount = 8;", "string name = 9;", "bytes raw = 10;",
    "State state = 11;", "repeated State states = 12;", "repeated int32 numbers = 13;",
    "map<string, int64> counts = 14;", "map<int32, Line> lines = 15;", "Line line = 16;",
    "google.protobuf.Timestamp at = 17;", "google.protobuf.Timestamp until = 18;",
    "oneof choice { int32 one = 19; string other = 20; }", "optional int32 maybe = 21;", "Nothing nothing = 22;",
    "repeated Line list = 23;", "optional string note = 1000;",
)  # fmt: skip
MESSAGE = "shop.Order"


def proto_text(fields: Iterable[str]) -> str:
    """A file whose second message is `MESSAGE`, with some of `FIELDS`."""
    return (
        'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; message Nothing {} '
        f"message Order {{ {' '.join(fields)} }} "
        "message Line { string item = 1; int32 count = 2; } enum State { NEW = 0; DONE = 1; }"
    )


@cache
def message_class(text: str) -> Any:
    """Of `MESSAGE` in a file's text."""
    return message_factory.GetMessageClass(message_descriptor(compiled_proto({"made.proto": text}), MESSAGE))


def made(random: Random, message: Any) -> Any:
    """Fill some of a message's fields."""
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.5 and not field.is_required:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries = getattr(message, field.name)
            for key in range(random.randrange(4)):
                if field.name == "lines":
                    made(random, entries[key])
                else:
                    entries[f"k{key}"] = random.randrange(3)
        elif field.is_repeated:
            for _ in range(random.randrange(4)):
                if field.message_type is None:
                    getattr(message, field.name).append(_scalar(random, field))
                else:
                    made(random, getattr(message, field.name).add())
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            made(random, getattr(message, field.name))
        else:
            setattr(message, field.name, _scalar(random, field))
    return message


def _scalar(random: Random, field: Any) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_BOOL:
            return random.random() < 0.5
        case field.CPPTYPE_ENUM:
            return random.choice([value.number for value in field.enum_type.values])
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return random.choice((0.0, -0.0, 1.5, -1e30, float("inf")))
        case field.CPPTYPE_STRING:
            text = random.choice(("", "a", "é€𐍈" * 5))
            return text if field.type == field.TYPE_STRING else text.encode()
    bits = random.choice((0, 1, 7, 14, 31 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 40))
    number = random.randrange(1 << bits)
    return -number if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64) and random.random() < 0.5 else number
