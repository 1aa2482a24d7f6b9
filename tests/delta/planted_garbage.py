"""Topics of good records, one in a hundred of them garbage of a known kind.

A record's number is in its value, and says where the record is and what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.formats.avro_cases import varint
from tests.rigs.fuzz.mutation import uvarint
from tests.rigs.stack.rows import Record
from tests.tier.topics import write_topic
from tiered_stream.formats.registry.writer_schemas import NOT_FRAMED

EVERY, PARTITIONS = 100, 2


@dataclass(frozen=True)
class Garbage:
    """One kind of it. `reason` is a part of what is told; `part`: what has failed."""

    kind: str
    reason: str
    make: Callable[[int], bytes]
    part: str = "value"


@dataclass(frozen=True)
class PlantedTopic:
    """`good` makes a value of a record's number. `settings` without the prefix `ingest.value.`."""

    name: str
    settings: Mapping[str, str]
    good: Callable[[int], bytes]
    kinds: tuple[Garbage, ...]

    def garbage(self, number: int) -> Garbage | None:
        """Which the record is, if any."""
        return self.kinds[number // EVERY % len(self.kinds)] if number % EVERY == 7 else None

    def record(self, number: int) -> Record:
        garbage = self.garbage(number)
        content = garbage.make(number) if garbage else self.good(number)
        key = b"k%d" % number
        headers = (("number", b"%d" % number), ("none", None)) if garbage or number % 10 == 0 else ()
        is_key = garbage is not None and garbage.part == "key"
        return Record(content if is_key else key, self.good(number) if is_key else content, headers,
                      1_700_000_000_000 + number)  # fmt: skip

    def write(self, bucket: Path, count: int) -> None:
        size = count // PARTITIONS
        write_topic(
            bucket,
            self.name,
            [[self.record(at) for at in range(start, start + size)] for start in range(0, count, size)],
        )

    def planted(self, count: int) -> Iterator[tuple[int, Garbage]]:
        """All garbage, by its record's number."""
        for number in range(7, count, EVERY):
            garbage = self.garbage(number)
            assert garbage
            yield number, garbage


def _document(number: int, **changed: str) -> bytes:
    members = {"id": str(number), "name": f'"n{number}"', "price": "1.5", "amount": '"12.50"',
               "at": '"2024-01-02T03:04:05Z"', "raw": '"YWJj"', "tags": '["a", null]', **changed}  # fmt: skip
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in members.items()) + "}").encode()


def _with(name: str, value: str) -> Callable[[int], bytes]:
    return lambda number: _document(number, **{name: value})


JSON = PlantedTopic(
    "json",
    {"format": "json", "schema": "id BIGINT, name STRING, price DOUBLE, amount DECIMAL(12,2), at TIMESTAMP, "
                                 "raw BINARY, tags ARRAY<STRING>"},
    _document,
    (
        Garbage("nothing", "the value is empty", lambda _: b""),
        Garbage("bytes", "UTF-8", lambda number: b"\xff\xfe\x00" + number.to_bytes(4)),
        Garbage("a text", "no JSON", lambda number: b"record %d" % number),
        Garbage("truncated", "no JSON", lambda number: _document(number)[:-4]),
        Garbage("two documents", "no JSON", lambda number: _document(number) * 2),
        Garbage("an array", "an array, not an object", lambda number: b"[%d]" % number),
        Garbage("UTF-8", "UTF-8", lambda number: _document(number).replace(b'"n', b'"\xc3')),
        Garbage("half a pair", "surrogate", _with("name", r'"\ud800"')),
        Garbage("too deep", "levels", _with("more", "[" * 300 + "]" * 300)),
        Garbage("the last of two keys", "id", lambda number: _document(number)[:-1] + b', "id": "x"}'),
        Garbage("NaN for a number", "id", _with("id", "NaN")),
        Garbage("too large", "id", _with("id", "9223372036854775808")),
        Garbage("a huge exponent", "amount", _with("amount", "1e999999999")),
        Garbage("too many digits", "amount", _with("amount", '"1e30"')),
        Garbage("another type", "price", _with("price", '{"a": 1}')),
        Garbage("no time", "at", _with("at", '"2024-13-45"')),
        Garbage("no base64", "raw", _with("raw", '"!!"')),
        Garbage("no list", "tags", _with("tags", "3")),
        Garbage("a key that is no text", "UTF-8", lambda number: b"\xff%d" % number, "key"),
        Garbage("NOT NULL", "the column id is NOT NULL", _with("id", "null"), "row"),
        Garbage("CHECK", "the constraint cheap does not hold", _with("price", "2e6"), "row"),
    ),
)  # fmt: skip

AVRO_SCHEMA = (
    '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"name","type":"string"},'
    '{"name":"ok","type":"boolean"},{"name":"e","type":{"type":"enum","name":"e","symbols":["A","B"]}},'
    '{"name":"u","type":["null","int"]},{"name":"m","type":{"type":"map","values":"int"}},'
    '{"name":"l","type":{"type":"array","items":"int"}},'
    '{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}},'
    '{"name":"n","type":"int"}]}'
)
MENDED_AVRO_SCHEMA = AVRO_SCHEMA.replace('"A","B"', '"A","B","C"')
_PARTS = {"name": b"\x02n", "ok": b"\1", "e": b"\2", "u": b"\2\6", "m": b"\2\2k\2\0", "l": b"\2\4\0", "d": b"\4\1\x2c",
          "n": b"\x0e"}  # fmt: skip


def _datum(number: int, **changed: bytes) -> bytes:
    return varint(number) + b"".join((_PARTS | changed).values())


def _avro(name: str, content: bytes) -> Callable[[int], bytes]:
    return lambda number: _datum(number, **{name: content})


NEW_SYMBOL = Garbage("an enum's number", "e: the enum has no such symbol", _avro("e", b"\4"))
AVRO_KINDS = (
    Garbage("nothing", "end within", lambda _: b""),
    Garbage("truncated", "end within", lambda number: _datum(number)[:-1]),
    Garbage("more bytes", "bytes after its end", lambda number: _datum(number) + b"\0"),
    Garbage("a negative length", "name: a length is negative", _avro("name", b"\1")),
    Garbage("a huge length", "name: a length is negative, or more", _avro("name", varint(1 << 40))),
    Garbage("UTF-8", "name: a string is not UTF-8", _avro("name", b"\2\xff")),
    Garbage("a boolean", "ok: a boolean is neither 0 nor 1", _avro("ok", b"\2")),
    NEW_SYMBOL,
    Garbage("a union's branch", "u: the union has no such branch", _avro("u", b"\4")),
    Garbage("a map with a key twice", "m: a map has a key twice", _avro("m", b"\4\2k\2\2k\4\0")),
    Garbage("a block's size", "l: ", _avro("l", b"\1\x08\4\0")),
    Garbage("items without end", "l: ", _avro("l", varint(1 << 50))),
    Garbage("too many digits", "d: ", _avro("d", b"\x08\x7f\xff\xff\xff")),
    Garbage("too long a number", "n: a number is longer than its type", _avro("n", b"\xff" * 9 + b"\1")),
)
AVRO = PlantedTopic("avro", {"format": "avro", "schema": AVRO_SCHEMA}, _datum, AVRO_KINDS)

PROTO = (
    'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; message Other { int32 a = 1; } '
    "message Order { optional int64 id = 1; string name = 2; google.protobuf.Timestamp at = 3; Other other = 4; "
    "repeated double list = 5; }"
)


def _message(number: int, more: bytes = b"") -> bytes:
    return b"\x08" + uvarint(number) + b"\x12\1n\x1a\2\x08\1\x22\2\x08\1\x2a\x08" + b"\0" * 8 + more


def _proto(more: bytes) -> Callable[[int], bytes]:
    return lambda number: _message(number, more)


PROTOBUF_KINDS = (
    Garbage("truncated", "no message", lambda number: _message(number)[:-3]),
    Garbage("bytes", "no message", lambda number: b"\xff" * 12 + number.to_bytes(4)),
    Garbage("UTF-8", "no message", _proto(b"\x12\1\xff")),
    Garbage("the field 0", "no message", _proto(b"\0\1")),
    Garbage("too long a number", "no message", _proto(b"\x08" + b"\xff" * 11)),
    Garbage("a huge length", "no message", _proto(b"\x12\xff\xff\xff\xff\x07")),
    Garbage("a group's end", "no message", _proto(b"\x0c")),
    Garbage("a message that is cut", "no message", _proto(b"\x22\2\x08\x80")),
    Garbage("a time out of range", "does not fit into microseconds", _proto(b"\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f")),
    Garbage("a list of halves", "no message", _proto(b"\x2a\3\0\0\0")),
)


def protobuf_topic(folder: Path) -> PlantedTopic:
    """By a `.proto` file that is written into the folder."""
    file = folder / "order.proto"
    file.write_text(PROTO)
    settings = {"format": "protobuf", "schema": str(file), "message": "shop.Order"}
    return PlantedTopic("protobuf", settings, _message, PROTOBUF_KINDS)


AVRO_ID, LATE_AVRO_ID, NUMBER_ID, PROTOBUF_ID, LATE_PROTOBUF_ID = 5, 6, 7, 8, 9
"""Of schemas; those that are late are unknown when the topics are landed."""


def _framed(schema_id: int, content: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda number: b"\0" + schema_id.to_bytes(4) + content(number)


def _frames(schema_id: int, content: Callable[[int], bytes]) -> tuple[Garbage, ...]:
    """What is wrong before the content."""
    framed = _framed(schema_id, content)
    return (
        Garbage("wrong magic", NOT_FRAMED, lambda number: b"\1" + framed(number)[1:]),
        Garbage("too short", NOT_FRAMED, lambda number: framed(number)[:4]),
        Garbage("a negative id", NOT_FRAMED, _framed(0xFFFFFFFF, content)),
        Garbage("an id of nobody", "the schema registry has no schema 123456", _framed(123456, content)),
    )


def _as_second_message(make: Callable[[int], bytes], number: int) -> bytes:
    return b"\2\2" + make(number)


def _second_message(number: int) -> bytes:
    return _as_second_message(_message, number)


LATE_AVRO = Garbage(
    "an id that comes later", f"the schema registry has no schema {LATE_AVRO_ID}", _framed(LATE_AVRO_ID, _datum)
)
REGISTERED_AVRO = PlantedTopic(
    "ravro",
    {"format": "avro", "schema": "registry"},
    _framed(AVRO_ID, _datum),
    (
        *_frames(AVRO_ID, _datum),
        LATE_AVRO,
        Garbage("a writer of another type", f"schema {NUMBER_ID}: ", _framed(NUMBER_ID, lambda _: b"\2")),
        Garbage("a writer of protobuf", "is of the format PROTOBUF, not AVRO", _framed(PROTOBUF_ID, _datum)),
        *(Garbage(each.kind, each.reason, _framed(AVRO_ID, each.make)) for each in AVRO_KINDS),
    ),
)
LATE_PROTOBUF = Garbage(
    "an id that comes later",
    f"the schema registry has no schema {LATE_PROTOBUF_ID}",
    _framed(LATE_PROTOBUF_ID, _second_message),
)
REGISTERED_PROTOBUF = PlantedTopic(
    "rprotobuf",
    {"format": "protobuf", "schema": "registry", "message": "shop.Order"},
    _framed(PROTOBUF_ID, _second_message),
    (
        *_frames(PROTOBUF_ID, _second_message),
        LATE_PROTOBUF,
        Garbage("a writer of Avro", "is of the format AVRO, not PROTOBUF", _framed(AVRO_ID, _message)),
        Garbage("another message", "is a message shop.Other", _framed(PROTOBUF_ID, lambda _: b"\0\x08\1")),
        Garbage("no such message", "has no message [9]", _framed(PROTOBUF_ID, lambda _: b"\2\x12\x08\1")),
        Garbage("no message's number", "does not say which message", _framed(PROTOBUF_ID, lambda _: b"")),
        *(
            Garbage(each.kind, each.reason, _framed(PROTOBUF_ID, partial(_as_second_message, each.make)))
            for each in PROTOBUF_KINDS
        ),
    ),
)
