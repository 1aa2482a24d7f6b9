"""Made-up Avro schemas, values of them, their bytes, and what a column has of them.

A union's value is (branch, value); timestamps, dates and decimals are the numbers that are written.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from random import Random
from typing import Any

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
    {"type": "int", "logicalType": "time-millis"},
)
LETTERS = 'abc xyz,é€𐍈\n"\0'
SMALLEST, LARGEST = -60_000_000_000, 250_000_000_000
"""Seconds that a datetime can tell."""


class Schemas:
    """Schemas by a seed, small ones; `unions`, `logical`: whether there are such that others than Spark cannot tell."""

    def __init__(self, random: Random, unions: bool = True, logical: bool = True) -> None:
        self.random, self._unions, self._logical, self._names = random, unions, logical, 0

    def record(self, depth: int = 3) -> dict[str, Any]:
        fields = [{"name": f"f{at}", "type": self.any(depth)} for at in range(self.random.randint(1, 5))]
        return {"type": "record", "name": self._name(), "fields": fields}

    def any(self, depth: int) -> Any:
        kind = self.random.randrange(14 if depth > 0 else 7)
        match kind:
            case 7 | 8:
                return ["null", self._not_null(depth - 1)] if kind == 7 else [self._not_null(depth - 1), "null"]
            case 9:
                return {"type": "array", "items": self.any(depth - 1)}
            case 10:
                return {"type": "map", "values": self.any(depth - 1)}
            case 11:
                return self.record(depth - 1)
            case 12 if self._unions:
                return self._union(depth - 1)
        return self._not_null(0)

    def _not_null(self, depth: int) -> Any:
        if depth > 0 and self.random.random() < 0.4:
            return self.record(depth - 1)
        match self.random.randrange(4):
            case 0 if self._logical:
                return self.random.choice((*LOGICAL, self._fixed(16, decimal=True)))
            case 1:
                return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"], "default": "A"}
            case 2:
                return self._fixed(self.random.choice((1, 5)))
        return self.random.choice(PRIMITIVES[1:])

    def _fixed(self, size: int, decimal: bool = False) -> dict[str, Any]:
        more = {"logicalType": "decimal", "precision": 30, "scale": 3} if decimal else {}
        return {"type": "fixed", "name": self._name(), "size": size, **more}

    def _union(self, depth: int) -> list[Any]:
        choices: list[list[Any]] = [
            ["int", "long"], ["double", "float"], ["string", "boolean", self.record(depth)],
            [self.record(depth), self.record(depth)],
        ]  # fmt: skip
        branches = choices[self.random.randrange(4)]
        return [*branches, "null"] if self.random.random() < 0.5 else branches

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"


def value(random: Random, schema: Any) -> Any:
    """A value of a schema."""
    if isinstance(schema, list):
        branch = random.randrange(len(schema))
        return branch, value(random, schema[branch])
    match _of(schema)[0]:
        case "array":
            return [value(random, schema["items"]) for _ in range(random.choice((0, 1, 2, 5)))]
        case "map":
            return {f"k{at}": value(random, schema["values"]) for at in range(random.choice((0, 1, 2, 5)))}
        case "record":
            return {field["name"]: value(random, field["type"]) for field in schema["fields"]}
        case "enum":
            return random.choice(schema["symbols"])
    return _simple(random, schema, *_of(schema))


def _simple(random: Random, schema: Any, kind: str, logical: str | None) -> Any:
    match kind:
        case "boolean":
            return random.random() < 0.5
        case "int" | "long":
            return _number(random, kind, logical)
        case "float" | "double":
            number = random.choice((0.0, -0.0, 1.5, -1e30, float("inf"), random.uniform(-1e9, 1e9)))
            return struct.unpack("<f", struct.pack("<f", number))[0] if kind == "float" else number
        case "string":
            return "".join(random.choices(LETTERS, k=random.choice((0, 1, 5, 40))))
        case "bytes" | "fixed" if logical == "decimal":
            digits = random.choice((1, schema["precision"]))
            number = random.randint(-(10**digits) + 1, 10**digits - 1)
            return number.to_bytes(schema.get("size", max(1, (number.bit_length() + 8) // 8)), signed=True)
        case "bytes" | "fixed":
            return random.randbytes(schema["size"] if kind == "fixed" else random.choice((0, 1, 30)))
    return None


def _number(random: Random, kind: str, logical: str | None) -> int:
    match logical:
        case "date":
            return random.randint(SMALLEST // 86400, LARGEST // 86400)
        case None | "time-millis":
            bits = random.choice((1, 7, 14, 31 if kind == "int" else 63))
            return random.randint(-(1 << bits), (1 << bits) - 1)
    return random.randint(SMALLEST, LARGEST) * (1000 if logical.endswith("millis") else 1_000_000) + random.randrange(
        1000
    )


def _of(schema: Any) -> tuple[str, str | None]:
    return (schema, None) if isinstance(schema, str) else (schema["type"], schema.get("logicalType"))


def varint(number: int) -> bytes:
    """Zigzag."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes((*out, left))


def encoded(schema: Any, given: Any, sized_blocks: bool = False) -> bytes:
    """A value's bytes; `sized_blocks`: as a writer does that says how long a block of items is."""
    if isinstance(schema, list):
        branch, inner = given
        return varint(branch) + encoded(schema[branch], inner, sized_blocks)
    match _of(schema)[0]:
        case "array":
            return _blocks([encoded(schema["items"], each, sized_blocks) for each in given], sized_blocks)
        case "map":
            keys = [encoded("string", key) for key in given]
            values = [encoded(schema["values"], each, sized_blocks) for each in given.values()]
            return _blocks(list(map(bytes.__add__, keys, values)), sized_blocks)
        case "record":
            return b"".join(encoded(field["type"], given[field["name"]], sized_blocks) for field in schema["fields"])
        case "enum":
            return varint(schema["symbols"].index(given))
    return _encoded_simple(_of(schema)[0], given)


def _encoded_simple(kind: str, given: Any) -> bytes:
    match kind:
        case "int" | "long":
            return varint(given)
        case "float" | "double":
            return struct.pack("<f" if kind == "float" else "<d", given)
        case "string":
            return varint(len(given.encode())) + bytes(given.encode())
        case "bytes":
            return varint(len(given)) + bytes(given)
    return b"" if given is None else bytes([given]) if kind == "boolean" else bytes(given)


def _blocks(items: list[bytes], sized: bool) -> bytes:
    """Two blocks, if there are items for two."""
    out = b""
    for block in (items[:1], items[1:]):
        if block:
            body = b"".join(block)
            out += (varint(-len(block)) + varint(len(body)) if sized else varint(len(block))) + body
    return out + b"\0"


def in_column(schema: Any, given: Any) -> Any:
    """What `to_pylist` of a column gives for a value."""
    if isinstance(schema, list):
        branch, inner = given
        inner = in_column(schema[branch], inner)
        values = [each for each in schema if each != "null"]
        if (
            schema[branch] == "null"
            or len(values) == 1
            or set(map(str, values)) in ({"int", "long"}, {"float", "double"})
        ):
            return inner
        chosen = values.index(schema[branch])
        return {f"member{at}": inner if at == chosen else None for at in range(len(values))}
    kind, logical = _of(schema)
    match kind:
        case "array":
            return [in_column(schema["items"], each) for each in given]
        case "map":
            return [(key, in_column(schema["values"], each)) for key, each in given.items()]
        case "record":
            return {field["name"]: in_column(field["type"], given[field["name"]]) for field in schema["fields"]}
    match logical:
        case "date":
            return EPOCH.date() + datetime.timedelta(given)
        case "decimal":
            return decimal.Decimal(int.from_bytes(given, signed=True)).scaleb(
                -schema["scale"], decimal.Context(prec=60)
            )
        case str() if "timestamp" in logical:
            micros = given * (1000 if logical.endswith("millis") else 1)
            told = EPOCH + datetime.timedelta(microseconds=micros)
            return told.replace(tzinfo=None) if logical.startswith("local") else told
    return given
