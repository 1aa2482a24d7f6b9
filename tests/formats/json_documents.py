"""JSON documents for made-up schemas: most fit, some nearly do, some are no JSON at all."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

import pyarrow as pa

UTC = pa.timestamp("us", tz="UTC")
SIMPLE = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(5, 2),
    pa.decimal128(18, 6), pa.decimal128(38, 10), pa.string(), pa.binary(), pa.date32(), UTC, pa.timestamp("us"),
)  # fmt: skip

NUMBERS = (
    "0", "-0", "1", "-1", "7", "127", "-128", "300", "32768", "2147483647", "2147483648", "-9223372036854775808",
    "9223372036854775807", "9223372036854775808", "123456789012345678", "12345678901234567890123", "1.0", "1.10",
    "-0.0", "0.1", "1.005", "-1.5e-3", "1e2", "1E+2", "1e22", "1e23", "9007199254740993", "0.1234567890123456789",
    "123456789.12345678", "3.4028235e38", "1e39", "1.7976931348623157e308", "1e309", "-1e400", "5e-324", "1e-400",
    "1e999999999", "16777217", "0.000000000000000000000012345", "1" * 1000, "1" * 1001, "99999999999999", "1577934245",
)  # fmt: skip
TIMES = (
    "2020", "2020-1", "2020-01-02", "2020-1-2", " 2020-01-02 ", "2020-01-02x", "2020-01-02 x", "2020-01-02T",
    "2020-02-29", "2021-02-29", "1900-02-29", "2000-02-29", "2020-13-01", "2020-00-01", "2020-01-00", "0000-01-01",
    "0001-01-01", "9999-12-31", "10000-01-01", "+10000-01-01", "-0001-01-01", "99999999-01-01", "1582-10-10",
    "2020-01-02T03:04:05", "2020-01-02 03:04:05", "2020-01-02T3:4:5", "2020-01-02T03:04", "2020-01-02T03",
    "2020-01-02T03:04:05.1", "2020-01-02T03:04:05.123456", "2020-01-02T03:04:05.123456789", "2020-01-02T03:04:05Z",
    "2020-01-02T03:04:05z", "2020-01-02T03:04:05.Z", "2020-01-02T03:04:05.5Z", "2020-01-02T03:04:05+01:00",
    "2020-01-02T03:04:05-17:59", "2020-01-02T03:04:05-18:00", "2020-01-02T03:04:05+18:01", "2020-01-02T03:04:05+0100",
    "2020-01-02T03:04:05+1", "2020-01-02T03:04:05 +01:00", "2020-01-02T03:04:05 UTC", "2020-01-02T03:04:05GMT+1",
    "2020-01-02T03:04:05 Europe/Berlin", "2020-03-29T02:30:00 Europe/Berlin", "2020-10-25T02:30:00 Europe/Berlin",
    "2020-01-02T24:00:00", "2020-01-02T23:59:60", "2020-01-02T23:60:00", "18262", "-1", "+5", "1", "now",
    "1969-12-31T23:59:59.999999Z",
)  # fmt: skip
TEXTS = (
    "", "a", " 1 ", "1", "1.5", "1,000.5", "1e3", "+5", "-5", "5abc", "NaN", "Infinity", "-INF", "+INF", "inf", "true",
    "é", "日本", "\U0001f600", "\x7f", "\u2028", "eight by", "a text of more than sixteen characters", 'a"b', "a\\b",
    "tab\tnew\nline", "\x00", "/",
)  # fmt: skip
BASE64 = (
    "",
    "YWJj",
    "YQ==",
    "YQ",
    "YWJ",
    "YW Jj",
    "_-8=",
    "/+8=",
    "YQ=\n=",
    "!!",
    "YWJj=",
    "=",
    " YWJj\nYWJj\0",
    "YQ==YWJj",
)
LITERALS = ("true", "false", "null")
OTHERS = (
    "tru", "nul", "True", "-", "+1", "01", "-01", ".5", "1.", "1e", "1e+", "0x10", "NaN", "Infinity", "-Infinity",
    '"\\ud83d\\ude00"', '"\\ud800"', '"\\x"', '"\\u00g0"', '"a\\u0041\\/\\b\\f\\n\\r\\t"', '"tab\tin it"', '"', "{",
    "[", "]", "}", ",", ":", "", '"a":1', "{}", "[]", "[[]]", '{"a":1}', "[1,]", '{"a":1,}', "[1 2]", '[1,"x",null]',
    '{"a":{"b":[1.10,-0,true,{"c":null}]},"a":2}', "/*c*/1",
)  # fmt: skip
BYTES = (
    b'"\xff"',
    b'"\xc3"',
    b'"\xc3\xa9"',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b'"\xf5\x80\x80\x80"',
    b"\xff",
    b"\xef\xbb\xbf",
)
WHOLE = (
    b"", b" ", b"null", b"1", b'"a"', b"[]", b"[{}]", b"{", b"}", b"{}", b" {\n} ", b"{}{}", b"{} x", b"{},", b"\0",
    b"\xef\xbb\xbf{}", b"{}\0", b"\x0b{}", b"{'a':1}", b"{a:1}", b'{"z":' + b"[" * 70 + b"]" * 70 + b"}",
    b'{"z":' + b"[" * 100_000, b'{"z":' + b'{"z":' * 600 + b"1" + b"}" * 601,
)  # fmt: skip


def make_kind(random: Random, depth: int = 2, most: int = 6) -> pa.StructType:
    fields = random.randrange(1, most + 1)
    return pa.struct([(_name(random, at), _field_kind(random, depth)) for at in range(fields)])


def _name(random: Random, at: int) -> str:
    return random.choice(
        (f"f{at}", f"a_long_field_name_{at}", f"é{at}", f"F{at}", f'q"{at}' if random.random() < 0.1 else f"n{at}")
    )


def _field_kind(random: Random, depth: int) -> pa.DataType:
    way = random.random()
    if depth == 0 or way < 0.7:
        return random.choice(SIMPLE)
    below = _field_kind(random, depth - 1)
    if way < 0.8:
        return pa.list_(pa.field("element", below))
    return pa.map_(pa.string(), below) if way < 0.9 else make_kind(random, depth - 1, 3)


def document(random: Random, kind: pa.StructType) -> bytes:
    """One for the schema; one in ten has something that is wrong as a whole."""
    way = random.random()
    if way < 0.03:
        return random.choice(WHOLE)
    made = _object(random, kind)
    if way < 0.06:
        cut = random.randrange(len(made) + 1)
        return made[:cut] + random.choice((b"", b"\xff", b'"', b",", b"}", b"\\", b"\0", b"e", b"-", b" "))
    if way < 0.1:
        at = random.randrange(len(made))
        return made[:at] + random.choice((b"", b'"', b",", b":", b"0", b"\x80", b"]")) + made[at + 1 :]
    return _blank(random) + made + _blank(random)


def _blank(random: Random) -> bytes:
    return random.choice((b"", b"", b"", b"", b" ", b"\n\t", b"\r "))


def _object(random: Random, kind: pa.StructType) -> bytes:
    fields = list(kind)
    way = random.random()
    if way < 0.2:
        random.shuffle(fields)
    elif way < 0.3:
        fields = fields[: random.randrange(len(fields) + 1)]
    elif way < 0.33:
        fields.append(random.choice(fields))
    members = [(field.name, _value(random, field.type)) for field in fields]
    if random.random() < 0.2:
        members.insert(random.randrange(len(members) + 1), (random.choice(TEXTS), _any(random)))
    return _braces(random, b"{", [_key(random, key) + each for key, each in members], b"}")


def _key(random: Random, key: str) -> bytes:
    return json.dumps(key, ensure_ascii=random.random() < 0.02).encode() + _blank(random) + b":" + _blank(random)


def _braces(random: Random, opening: bytes, members: list[bytes], closing: bytes) -> bytes:
    blank = _blank(random)
    return opening + blank + (blank + b"," + blank).join(members) + blank + closing


def _value(random: Random, kind: pa.DataType) -> bytes:
    way = random.random()
    if way < 0.08:
        return b"null"
    if way < 0.1:
        return _any(random)
    if pa.types.is_struct(kind):
        return _object(random, kind)
    count = random.randrange(4)
    if pa.types.is_list(kind):
        return _braces(random, b"[", [_value(random, kind.value_type) for _ in range(count)], b"]")
    if pa.types.is_map(kind):
        members = [_key(random, random.choice(TEXTS)) + _value(random, kind.item_type) for _ in range(count)]
        return _braces(random, b"{", members, b"}")
    return _simple(random, kind)


def _simple(random: Random, kind: pa.DataType) -> bytes:
    if kind == pa.bool_():
        return random.choice(LITERALS).encode()
    if kind == pa.string():
        return json.dumps(random.choice(TEXTS), ensure_ascii=random.random() < 0.1).encode()
    if kind == pa.binary():
        data = base64.b64encode(random.randbytes(random.randrange(10))).decode()
        return json.dumps(data if random.random() < 0.8 else random.choice(BASE64)).encode()
    if pa.types.is_temporal(kind) and random.random() < 0.9:
        return json.dumps(random.choice(TIMES)).encode()
    way = random.random()
    if way < 0.3:
        return str(random.randrange(-100, 100)).encode()
    if way < 0.6 and not pa.types.is_integer(kind):
        return f"{random.uniform(-1000, 1000):.{random.randrange(1, 4)}f}".encode()
    return (
        repr(random.random() * 10 ** random.randrange(-5, 20)).encode()
        if way < 0.7
        else random.choice(NUMBERS).encode()
    )


def _any(random: Random) -> bytes:
    way = random.random()
    if way < 0.3:
        return random.choice(NUMBERS).encode()
    if way < 0.6:
        return json.dumps(random.choice(TEXTS + TIMES + BASE64), ensure_ascii=random.random() < 0.5).encode()
    if way < 0.7:
        return random.choice(BYTES)
    return random.choice(LITERALS + OTHERS).encode()


def in_python(column: pa.Array) -> list[Any]:
    """The rows, with dates and timestamps as numbers: Python has no year 10000."""
    rows: list[Any] = column.cast(_without_dates(column.type)).to_pylist()
    return rows


def _without_dates(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_without_dates(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_dates(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_without_dates(kind.item_type)))
    return {pa.date32(): pa.int32(), UTC: pa.int64(), pa.timestamp("us"): pa.int64()}.get(kind, kind)
