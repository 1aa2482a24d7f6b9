"""Drawn Avro schemas, and values of them, which fastavro writes and reads.

A value of a union is (branch, value), as fastavro takes it. Logical types have the numbers and bytes that are written.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from decimal import Decimal
from random import Random
from typing import Any

import fastavro

from tests.docs.schema_features import AVRO, NAMED
from tiered_stream.formats.avro.avro_decoder import AvroDecoder
from tiered_stream.formats.avro.avro_schema import parse_avro_schema
from tiered_stream.formats.rows.row_choices import AS_SPARK, AvroColumns, LargeDecimals

PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = tuple(each for each, *_ in AVRO if "logicalType" in each and each["type"] not in ("bytes", "fixed"))
NAMES = tuple({"type": kind, "connect.name": name} | ({"logicalType": logical} if logical else {})
              for kind, name, logical in NAMED)  # fmt: skip
NAMED_TIMES = {"Date": "date", "Timestamp": "timestamp-millis", "MicroTimestamp": "timestamp-micros"}
NOT_IN_SPARK = ("time-micros", "timestamp-nanos", "local-timestamp-nanos")
"""Logical types of which Spark's `from_avro` makes other columns, in some version."""
READ_AS_WRITTEN = ("time-millis", "time-micros", "uuid")
"""Logical types without a column type of their own, of which fastavro knows the values."""
FAMILIES = {"int": "number", "long": "number", "float": "fraction", "double": "fraction"}
WIDER = ({"int", "long"}, {"float", "double"})
LETTERS = 'abc xyz,é€𐍈\n"\0'
SMALLEST, LARGEST = -60_000_000_000, 250_000_000_000
"""Seconds that a datetime can tell."""
UNITS = {"date": 1 / 86400, "millis": 1000, "micros": 1_000_000, "nanos": 30_000_000}
"""Numbers in a second; SMALLEST seconds in nanoseconds are more than a long holds."""


class Schemas:
    """Small schemas by a seed. With `every`, they have what Spark's `from_avro` does not know, too."""

    def __init__(self, random: Random, every: bool = False) -> None:
        self.random, self._every, self._names = random, every, 0
        self._space = random.choice(("", "a.b.")) if every else ""
        self.reuses = every and random.random() < 0.3
        self._known: list[dict[str, Any]] = []

    def record(self, depth: int = 3) -> dict[str, Any]:
        fields = [{"name": f"f{at}", "type": self.any(depth)} for at in range(self.random.randint(1, 5))]
        return self._named({"type": "record", "fields": fields})

    def any(self, depth: int) -> Any:
        match self.random.randrange(14 if depth > 0 else 7):
            case 7 | 8:
                return self.random.sample(["null", self._one(depth - 1)], 2)
            case 9:
                return {"type": "array", "items": self.any(depth - 1)}
            case 10:
                return {"type": "map", "values": self.any(depth - 1)}
            case 11:
                return self.record(depth - 1)
            case 12:
                return self._union(depth - 1)
        return self._one(0)

    def _one(self, depth: int) -> Any:
        """Return a type that may be in a union."""
        if self.reuses and self._known and self.random.random() < 0.2:
            return self.random.choice(self._known)
        if depth > 0 and self.random.random() < 0.4:
            return self.record(depth - 1)
        match self.random.randrange(4):
            case 0:
                return self._logical()
            case 1:
                return self._named({"type": "enum", "symbols": ["A", "B", "C"], "default": "A"})
            case 2:
                return self._named({"type": "fixed", "size": self.random.choice((1, 5))})
        return self.random.choice(PRIMITIVES)

    def _logical(self) -> Any:
        if self._every and self.random.random() < 0.4:
            return dict(self.random.choice(NAMES))
        if self.random.random() < 0.5:
            known = [each for each in LOGICAL if self._every or each["logicalType"] not in NOT_IN_SPARK]
            return dict(self.random.choice(known))
        precision = self.random.choice((5, 18, 38, 64, self.random.randint(1, 64)) if self._every else (5, 18, 38))
        more = {"logicalType": "decimal", "precision": precision, "scale": self.random.randint(0, min(38, precision))}
        match self.random.randrange(4 if self._every else 2):
            case 0:
                return self._named({"type": "fixed", "size": _size(10**precision) + 1, **more})
            case 3:
                size, name = self.random.choice(((0, "big-decimal"), (12, "duration"), (16, "uuid")))
                other = {"type": "fixed", "size": size, "logicalType": name}
                return self._named(other) if size else {"type": "bytes", "logicalType": name}
        return {"type": "bytes", **more}

    def _union(self, depth: int) -> list[Any]:
        chosen: list[Any] = self.random.choice([["int", "long"], ["double", "float"], []])
        if not chosen:
            drawn = [self.any(depth) for _ in range(3)] + [self._one(depth), self.record(depth)]
            chosen = list({self._read_as(each): each for each in drawn if not isinstance(each, list)}.values())
        if self.random.random() < 0.5:
            chosen.insert(self.random.randint(0, len(chosen)), "null")
        return chosen

    def _read_as(self, schema: Any) -> str:
        """Return what types have in common of which Python, or the reader of a grown union, cannot tell the values.

        Of a union with strings and bytes, or with numbers of any kind, fastavro takes the first branch that may read a
        value. Avro's Java library takes the branch of the value's own type.
        """
        family = _family(schema)
        return family if self.reuses else {"string": "bytes", "fraction": "number"}.get(family, family)

    def _name(self) -> str:
        self._names += 1
        return f"{self._space}n{self._names}"

    def _named(self, schema: dict[str, Any]) -> dict[str, Any]:
        self._known.append({"name": self._name(), **schema})
        return self._known[-1]


class Grown:
    """Schemas that may read what others wrote: fields go, come, move and get names, and types grow.

    `defaults` are values of the fields that come, by their names.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas, self._random = schemas, schemas.random
        self.defaults: dict[str, tuple[Any, Any]] = {}

    def of(self, schema: Any, *, in_union: bool = False) -> Any:
        random = self._random
        match schema:
            case "int" | "float" | "string" | "long" if not in_union:
                wider = {"int": ("long", "float", "double"), "string": ("bytes",)}.get(schema, ("double",))
                return random.choice((schema, *wider, ["null", schema]))
            case {"type": "long", "logicalType": "timestamp-millis"}:
                return schema | {"logicalType": random.choice(("timestamp-millis", "timestamp-micros"))}
            case {"type": "bytes", "logicalType": "decimal", "precision": precision}:
                return schema | {"precision": max(precision, min(38, precision + random.randrange(3)))}
            case list():
                return [self.of(each, in_union=True) for each in schema]
            case {"type": "array", "items": items}:
                return {"type": "array", "items": self.of(items)}
            case {"type": "map", "values": values}:
                return {"type": "map", "values": self.of(values)}
            case {"type": "record", "fields": fields}:
                return self._renamed(schema | {"fields": self._fields(fields)})
            case {"type": "enum"}:
                return self._renamed(schema | {"symbols": ["A", "C"]})
        return schema

    def _renamed(self, schema: dict[str, Any]) -> dict[str, Any]:
        if self._random.random() < 0.8:
            return schema
        return schema | {"name": f"{schema['name']}_of_late", "aliases": [schema["name"]]}

    def _fields(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        grown = [each | {"type": self.of(each["type"])} for each in fields if self._random.random() < 0.8]
        for each in grown:
            if self._random.random() < 0.2:
                each |= {"name": f"renamed_{each['name']}", "aliases": ["other", each["name"]]}
        while self._random.random() < 0.4 or not grown:
            name, kind = f"new{len(self.defaults)}", self._schemas.any(1)
            default = value(self._random, kind, of_default=True)
            self.defaults[name] = kind, default
            grown.append({"name": name, "type": kind, "default": as_json(kind, default)})
        self._random.shuffle(grown)
        return grown


def value(random: Random, schema: Any, *, of_default: bool = False) -> Any:
    """Draw a value of a schema; a default has the first branch of each union, and no infinite number."""
    if isinstance(schema, list):
        branch = schema[0] if of_default else random.choice(schema)
        return _name_of(branch), value(random, branch, of_default=of_default)
    match schema:
        case {"type": "array", "items": items}:
            return [value(random, items, of_default=of_default) for _ in range(random.choice((0, 1, 2, 5)))]
        case {"type": "map", "values": values}:
            return {f"k{at}": value(random, values, of_default=of_default) for at in range(random.choice((0, 1, 3)))}
        case {"type": "record", "fields": fields}:
            return {each["name"]: value(random, each["type"], of_default=of_default) for each in fields}
        case {"type": "enum", "symbols": symbols}:
            return random.choice(symbols)
    return _simple(random, schema, of_default)


def _simple(random: Random, schema: Any, of_default: bool) -> Any:
    kind, more = (schema, {}) if isinstance(schema, str) else (schema["type"], schema)
    match kind:
        case "boolean":
            return random.random() < 0.5
        case "int" | "long":
            return _number(random, kind, more)
        case "float" | "double":
            number = random.choice((0.0, -0.0, 1.5, -1e30, 1.0 if of_default else float("inf"), random.uniform(-9, 9)))
            return struct.unpack("<f", struct.pack("<f", number))[0] if kind == "float" else number
        case "string":
            return "".join(random.choices(LETTERS, k=random.choice((0, 1, 5, 40))))
        case "bytes" | "fixed" if more.get("logicalType") == "decimal":
            largest = min(38, more["precision"]) if of_default else more["precision"]
            digits = random.choice((1, min(30, largest), largest))
            number = random.randint(-(10**digits) + 1, 10**digits - 1)
            return number.to_bytes(more.get("size", _size(number)), signed=True)
        case "bytes" | "fixed":
            return random.randbytes(more.get("size", random.choice((0, 1, 30))))
    return None


def _number(random: Random, kind: str, more: Mapping[str, str]) -> int:
    logical = more.get("logicalType") or NAMED_TIMES.get(more.get("connect.name", "").rpartition(".")[2], "")
    per_second = UNITS.get(logical.rpartition("-")[2])
    if per_second is None or logical.startswith("time-"):
        bits = random.choice((1, 7, 14, 31 if kind == "int" else 63))
        return random.randint(-(1 << bits), (1 << bits) - 1)
    return int(random.uniform(SMALLEST, LARGEST) * per_second)


def _size(number: int) -> int:
    return number.bit_length() // 8 + 1


def _name_of(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name", schema["type"]))


def _family(schema: Any) -> str:
    """Return what types have in common of which Python cannot tell the values in a union."""
    name = _name_of(schema)
    return FAMILIES.get(name, name)


def as_json(schema: Any, given: Any) -> Any:
    """Return the JSON of a default, whose value is `given`."""
    if isinstance(given, tuple):
        return as_json(next(each for each in schema if _name_of(each) == given[0]), given[1])
    match schema:
        case {"type": "array", "items": items}:
            return [as_json(items, each) for each in given]
        case {"type": "map", "values": values}:
            return {key: as_json(values, each) for key, each in given.items()}
        case {"type": "record", "fields": fields}:
            return {each["name"]: as_json(each["type"], given[each["name"]]) for each in fields}
    return given.decode("latin-1") if isinstance(given, bytes) else given


def encoded(schema: Any, given: Any) -> bytes:
    """Return a value's bytes."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, _for_fastavro(schema, AS_SPARK), given)
    return sink.getvalue()


def as_text(schema: Any, random: Random | None = None) -> str:
    """Return a schema's JSON, in which a type that comes again is its name; `random`: with names in short forms."""
    known = set()

    def once(node: dict[str, Any]) -> Any:
        if node.get("type") not in ("record", "enum", "fixed"):
            return node
        if (name := node["name"]) in known:
            return name
        known.add(name)
        if random is None or not (space := name.rpartition(".")[0]):
            return node
        return node | random.choice(({}, {"name": name.rpartition(".")[2], "namespace": space}))

    return json.dumps(json.loads(json.dumps(schema), object_hook=once))


def _for_fastavro(schema: Any, columns: AvroColumns) -> Any:
    """Return a schema that has logical types only where columns have the types of them."""

    def seen(node: dict[str, Any]) -> dict[str, Any]:
        logical, name = node.pop("logicalType", None), str(node.get("connect.name"))
        if columns.has_named_times and name.startswith("io.debezium.time."):
            logical = NAMED_TIMES.get(name.rpartition(".")[2], logical)
        is_binary = columns.large_decimals is LargeDecimals.BINARY and node.get("precision", 0) > 38
        return node if is_binary or logical in (None, *READ_AS_WRITTEN) else node | {"logicalType": logical}

    return fastavro.parse_schema(json.loads(as_text(schema), object_hook=seen))


def in_column(
    schema: Any, content: bytes, columns: AvroColumns = AS_SPARK, reader: Any = None,
    defaults: Mapping[str, tuple[Any, Any]] = {},
) -> Any:  # fmt: skip
    """Return what `to_pylist` of a column gives for a value that fastavro reads.

    Raises OverflowError if a decimal of the value has more digits than DECIMAL.
    """
    written, wanted = _for_fastavro(schema, columns), None if reader is None else _for_fastavro(reader, columns)
    found = fastavro.schemaless_reader(io.BytesIO(content), written, wanted, return_named_type=True)
    given = {name: in_column(kind, encoded(kind, default), columns) for name, (kind, default) in defaults.items()}
    return _in_column(reader or schema, found, columns.large_decimals, given)


def _in_column(schema: Any, found: Any, large: LargeDecimals, defaults: Mapping[str, Any]) -> Any:
    match schema:
        case list():
            return _of_union(schema, found, large, defaults)
        case {"type": "array", "items": items}:
            return [_in_column(items, each, large, defaults) for each in found]
        case {"type": "map", "values": values}:
            return [(key, _in_column(values, each, large, defaults)) for key, each in found.items()]
        case {"type": "record", "fields": fields}:
            names = [each["name"] for each in fields]
            return {name: defaults[name] if name in defaults else _in_column(each["type"], found[name], large, defaults)
                    for name, each in zip(names, fields, strict=True)}  # fmt: skip
    if isinstance(found, Decimal) and schema["precision"] > 38:
        if large is not LargeDecimals.DECIMAL:
            return f"{found:f}" if large is LargeDecimals.STRING else float(found)
        if len(found.as_tuple().digits) > 38:
            raise OverflowError(found)
    return struct.unpack("<f", struct.pack("<f", found))[0] if schema == "float" else found


def _of_union(schema: list[Any], found: Any, large: LargeDecimals, defaults: Mapping[str, Any]) -> Any:
    name, found = found if isinstance(found, tuple) else (None, found)
    values = [each for each in schema if each != "null"]
    if found is None or (len(values) == 2 and {each for each in values if isinstance(each, str)} in WIDER):
        return found
    chosen = 0 if len(values) == 1 else next(at for at, each in enumerate(values) if _holds(each, name, found))
    inner = _in_column(values[chosen], found, large, defaults)
    if len(values) == 1:
        return inner
    return {f"member{at}": inner if at == chosen else None for at in range(len(values))}


def _holds(schema: Any, name: str | None, found: Any) -> bool:
    """Return whether a value that fastavro has read is of a branch."""
    if name is not None or (isinstance(schema, dict) and "name" in schema):
        return isinstance(schema, dict) and schema.get("name") == name
    kinds = {bool: "boolean", str: "string", bytes: "bytes", Decimal: "bytes", float: "fraction", list: "array",
             dict: "map"}  # fmt: skip
    return _family(schema) == kinds.get(type(found), "number")


def record(*fields: Any) -> dict[str, Any]:
    """Return a schema of a record; fields are (name, type), or JSON."""
    listed = [{"name": each[0], "type": each[1]} if isinstance(each, tuple) else each for each in fields]
    return {"type": "record", "name": "r", "fields": listed}


def avro_decoder(schema: str, reader: str | None = None, columns: AvroColumns = AS_SPARK) -> AvroDecoder:
    """Return the decoder of values of a schema; `reader`: as values of this schema."""
    writer = parse_avro_schema(schema, columns=columns)
    return AvroDecoder(writer, writer if reader is None else parse_avro_schema(reader, columns=columns))


def varint(number: int) -> bytes:
    """Zigzag."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes((*out, left))
