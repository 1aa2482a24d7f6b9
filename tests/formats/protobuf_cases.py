"""Drawn `.proto` files, messages of them, and their rows as protobuf's Python reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC
from functools import cache
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.docs.schema_features import WELL_KNOWN_FILES
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto

SYNTAXES = {"proto2": 'syntax = "proto2";', "proto3": 'syntax = "proto3";', "2023": 'edition = "2023";'}
INTEGERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
DEFAULTS = {**dict.fromkeys(INTEGERS, "7"), "float": "-inf", "double": "0.5", "bool": "true", "string": '"é"',
            "bytes": r'"\001"', "State": "DONE", "Odd": "NONE"}  # fmt: skip
WRAPPERS = tuple(f"google.protobuf.{name}Value" for name in ("String", "Int64", "UInt32", "Bool", "Bytes", "Double"))
KNOWN = (*WRAPPERS, *(f"google.protobuf.{each}" for each in WELL_KNOWN_FILES if not each.endswith(("Value", "Struct"))))
IMPORTS = "".join(f'import "google/protobuf/{name}.proto"; ' for name in sorted({*WELL_KNOWN_FILES.values()}))
MESSAGE = "shop.Order"
WRITER = (("/* state */", "MORE = 99;"), ("/* odd */", "ODD_MORE = 99;"))
"""Marks in enums, and what the writer's file has in place of them."""


class Files:
    """Files by a seed. The second message is `Order`."""

    def __init__(self, random: Random, syntax: str = "proto3", known: Sequence[str] = KNOWN) -> None:
        self._random, self._syntax, self._known = random, syntax, known
        self.optional = "optional " if syntax == "proto2" else ""

    def text(self, package: str = "shop", more: str = "") -> str:
        """Return a file; `more` are more fields of `Order`."""
        simple = [each for each in DEFAULTS if self._syntax != "proto3" or each != "Odd"]
        order = self._fields((*simple, "Line", "Deep", "Nothing", "Nested", *self._known), 8)
        nested, line = self._fields((*simple, "Line"), 2), self._fields(simple, 3)
        deep = self._fields((*simple, "Line", "Nothing"), 4)
        closed = "option features.enum_type = CLOSED;" if self._syntax == "2023" else ""
        late = (
            f"extend Order {{ {self.optional}int32 late = 1000; {self.optional}Nothing none = 2000; }} "
            f"enum Odd {{ {closed} ONE = 1; NONE = 0; {WRITER[1][0]} }}"
        )
        return (
            f"{SYNTAXES[self._syntax]} package {package}; {IMPORTS} message Nothing {{}} "
            f"message Order {{ {order} message Nested {{ {nested} }} {more} "
            f"{'' if self._syntax == 'proto3' else 'extensions 1000 to 2000;'} }} "
            f"message Line {{ {line} }} message Deep {{ {deep} }} "
            f"enum State {{ {self._random.choice((closed, ''))} option allow_alias = true; NEW = 0; DONE = 1; "
            f"ALSO_NEW = 0; FAR = 2147483647; BELOW = -1; {WRITER[0][0]} }} "
            f"{'' if self._syntax == 'proto3' else late}"
        )

    def _fields(self, kinds: Sequence[str], most: int) -> str:
        random = self._random
        numbers = random.sample([*range(1, 40), 2047, 2048, (1 << 29) - 1], random.randint(1, most) + 1)
        fields = [self._field(random.choice(kinds), number) for number in numbers]
        if random.random() < 0.3:
            fields.append(f"oneof choice {{ int32 one = 40; {random.choice(kinds)} other = 41; Nothing none = 42; }}")
        return " ".join(fields)

    def _field(self, kind: str, number: int) -> str:
        random, name = self._random, f"f{number}"
        if random.random() < 0.2 and kind != "Odd":
            key = random.choice((*INTEGERS, "bool", "string"))
            return f"map<{key}, {kind}> {name} = {number};"
        if random.random() < 0.2:
            is_packed = kind in DEFAULTS and kind not in ("string", "bytes") and random.random() < 0.5
            option = " [features.repeated_field_encoding = EXPANDED]" if self._syntax == "2023" else " [packed = true]"
            return f"repeated {kind} {name} = {number}{option if is_packed else ''};"
        default = f"default = {DEFAULTS.get(kind)}"
        match self._syntax:
            case "proto3":
                return f"{random.choice(('', 'optional '))}{kind} {name} = {number};"
            case "proto2":
                label = random.choice(("optional", "optional", "optional", "required"))
                option = f" [{default}]" if kind in DEFAULTS and random.random() < 0.4 else ""
                return f"{label} {kind} {name} = {number}{option};"
        has_implicit = kind in DEFAULTS and kind not in ("State", "Odd")
        presence = ("EXPLICIT", "LEGACY_REQUIRED", "IMPLICIT")[: 2 + has_implicit]
        options = random.choice((*(f"features.field_presence = {each}" for each in presence), default))
        return f"{kind} {name} = {number}{f' [{options}]' if kind in DEFAULTS or default != options else ''};"


@cache
def message_class(text: str) -> Any:
    """Return the class of `MESSAGE` in a file's text."""
    return classes(compiled_proto({"made.proto": text}), MESSAGE)[MESSAGE]


def classes(descriptors: bytes, *messages: str) -> dict[str, Any]:
    """Return the classes of messages in a descriptor set."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in messages}


def made(random: Random, message: Any) -> Any:
    """Fill some of a message's fields."""
    if message.DESCRIPTOR.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        message.seconds = random.randint(-60_000_000_000, 250_000_000_000)
        is_negative = message.seconds < 0 and message.DESCRIPTOR.name == "Duration"
        message.nanos = random.randrange(1_000_000_000) * (-1 if is_negative else 1)
        return message
    for field in message.DESCRIPTOR.fields:
        if field.is_required or random.random() < 0.5:
            _fill(random, message, field)
    for extension in message.DESCRIPTOR.file.pool.FindAllExtensions(message.DESCRIPTOR):
        if extension.message_type is None:
            message.Extensions[extension] = random.randrange(100)
        else:
            message.Extensions[extension].SetInParent()
    return message


def _fill(random: Random, message: Any, field: Any) -> None:
    found = getattr(message, field.name)
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for chosen in [_scalar(random, key) for _ in range(random.randrange(4))]:
            if value.message_type is None:
                found[chosen] = _scalar(random, value)
            else:
                made(random, found[chosen])
    elif field.is_repeated:
        for _ in range(random.randrange(4)):
            if field.message_type is None:
                found.append(_scalar(random, field))
            else:
                made(random, found.add())
    elif field.message_type is not None:
        found.SetInParent()
        made(random, found)
    else:
        setattr(message, field.name, _scalar(random, field))


def _scalar(random: Random, field: Any) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_BOOL:
            return random.random() < 0.5
        case field.CPPTYPE_ENUM:
            return random.choice([value.number for value in field.enum_type.values])
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return random.choice((0.0, -0.0, 1.5, -1e30, float("inf"), float("nan")))
        case field.CPPTYPE_STRING:
            text = random.choice(("", "a", "é€𐍈" * 5))
            return text if field.type == field.TYPE_STRING else text.encode()
    is_signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    bits = (32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64) - is_signed
    number = random.randrange(1 << random.choice((0, 1, 7, 14, bits)))
    return -number if is_signed and random.random() < 0.5 else number


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def in_columns(message: Any) -> dict[str, Any]:
    """Return what a row has of a message that protobuf's Python has read."""
    return {field.name: _of_field(message, field) for field in message.DESCRIPTOR.fields if _has_column(field)}


def _has_column(field: Any) -> bool:
    if is_map(field):
        return _has_column(field.message_type.fields_by_name["value"])
    return field.message_type is None or any(map(_has_column, field.message_type.fields))


def _of_field(message: Any, field: Any) -> Any:
    found = getattr(message, field.name)
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return [(_one(key, each), _one(value, found[each])) for each in found]
    if field.is_repeated:
        return [_one(field, each) for each in found]
    if field.has_presence:
        return _one(field, found) if message.HasField(field.name) or field.has_default_value else None
    return None if not found and math.copysign(1, found if isinstance(found, float) else 1) > 0 else _one(field, found)


def _one(field: Any, found: Any) -> Any:
    if field.enum_type is not None:
        names = [value.name for value in field.enum_type.values if value.number == found]
        return names[0] if names else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{found}"
    if field.message_type is not None:
        match field.message_type.full_name:
            case "google.protobuf.Timestamp":
                return found.ToDatetime(UTC)
            case "google.protobuf.Duration":
                return found.ToTimedelta()
        return in_columns(found)
    bits = {field.CPPTYPE_UINT32: 32, field.CPPTYPE_UINT64: 64}.get(field.cpp_type)
    return found if bits is None or found < 1 << bits - 1 else found - (1 << bits)
