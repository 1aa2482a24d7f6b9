"""Parser of Spark's schemas, as DDL or as JSON, to Arrow schemas, for commands that run without Spark.

The types are the types to which Spark converts such a schema itself (pyspark: `to_arrow_schema`). TIMESTAMP is an
instant. Types that have no Arrow type there, such as VARCHAR(n), INTERVAL and VARIANT, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from tiered_stream.errors import ConfigurationError

_INSTANT = pa.timestamp("us", tz="UTC")
_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": _INSTANT,
    "timestamp_ltz": _INSTANT,
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_TOKENS = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[<>,:()]))",
    re.ASCII,
)
_MAX_LEVELS = 64


def parse_spark_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of a DDL string, or of Spark's JSON of a struct.

    Raises:
        ConfigurationError: a type is one that needs Spark, or the types are nested too deep.
        ValueError: the text is no schema.
    """
    if text.lstrip().startswith("{"):
        return pa.schema(list(_of_json(orjson.loads(text))))
    return _Ddl(text).schema()


class _Ddl:
    """Parser of one DDL string, such as `id BIGINT NOT NULL, tags ARRAY<STRING>`. Methods raise ValueError."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            match = _TOKENS.match(text, position)
            if match is None or match.lastgroup is None:
                raise ValueError(f"there is {text[position : position + 20]!r}, which no DDL has")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._next = 0
        self._levels = 0

    def schema(self) -> pa.Schema:
        """Return the columns of the whole text: a list of columns, or one struct."""
        if [value.lower() for _, value in self._tokens[:2]] == ["struct", "<"]:
            fields = list(self._type())
        else:
            fields = self._fields()
        if self._next < len(self._tokens):
            raise ValueError(f"there is {self._tokens[self._next][1]!r} after the column {fields[-1].name}")
        return pa.schema(fields)

    def _fields(self) -> list[pa.Field]:
        fields = [self._field()]
        while self._takes(","):
            fields.append(self._field())
        return fields

    def _field(self) -> pa.Field:
        kind, name = self._take()
        if kind not in ("quoted", "word"):
            raise ValueError(f"there is {name!r} where a column's name is expected")
        self._takes(":")
        column, nullable = self._type(), True
        if self._takes("not"):
            self._expect("null")
            nullable = False
        if self._takes("comment"):
            self._take()
        return pa.field(name.replace("``", "`"), column, nullable)

    def _type(self) -> pa.DataType:
        name = self._take()[1].lower()
        self._levels += 1
        if self._levels > _MAX_LEVELS:
            raise ConfigurationError(f"the types are nested in more than {_MAX_LEVELS} levels")
        try:
            return self._named(name)
        finally:
            self._levels -= 1

    def _named(self, name: str) -> pa.DataType:
        if name == "struct":
            self._expect("<")
            fields = [] if self._takes(">") else self._fields()
            if fields:
                self._expect(">")
            return pa.struct(fields)
        if name in ("array", "map"):
            self._expect("<")
            types = [self._type()]
            if name == "map":
                self._expect(",")
                types.append(self._type())
            self._expect(">")
            return pa.map_(*types) if name == "map" else _list_of(types[0])
        if name in _DECIMALS:
            return _decimal(*self._arguments())
        return _simple(name)

    def _arguments(self) -> tuple[int, int]:
        """Return the precision and the scale of a decimal, which may be left out."""
        if not self._takes("("):
            return 10, 0
        precision, scale = int(self._take()[1]), 0
        if self._takes(","):
            scale = int(self._take()[1])
        self._expect(")")
        return precision, scale

    def _take(self) -> tuple[str, str]:
        if self._next == len(self._tokens):
            raise ValueError("the text ends where a name or a type is expected")
        self._next += 1
        return self._tokens[self._next - 1]

    def _takes(self, value: str) -> bool:
        """Return whether the next token is this word or mark, and step over the token if it is."""
        found = self._next < len(self._tokens) and self._tokens[self._next][0] in ("word", "mark")
        if not found or self._tokens[self._next][1].lower() != value:
            return False
        self._next += 1
        return True

    def _expect(self, value: str) -> None:
        if not self._takes(value):
            rest = self._tokens[self._next][1] if self._next < len(self._tokens) else "the end"
            raise ValueError(f"there is {rest!r} where {value!r} is expected")


def _of_json(kind: Any, level: int = 0) -> pa.DataType:
    if level > _MAX_LEVELS:
        raise ConfigurationError(f"the types are nested in more than {_MAX_LEVELS} levels")
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            fields = [(each["name"], _of_json(each["type"], level + 1), each["nullable"]) for each in kind["fields"]]
            return pa.struct([pa.field(*field) for field in fields])
        if kind["type"] == "array":
            return _list_of(_of_json(kind["elementType"], level + 1), kind["containsNull"])
        if kind["type"] == "map":
            key, value = _of_json(kind["keyType"], level + 1), _of_json(kind["valueType"], level + 1)
            return pa.map_(key, pa.field("value", value, kind["valueContainsNull"]))
        raise _refused(str(kind["type"]))
    if (match := _DECIMAL.fullmatch(str(kind))) is not None:
        return _decimal(int(match[1]), int(match[2]))
    return _decimal(10, 0) if kind == "decimal" else _simple(str(kind).lower())


def _simple(name: str) -> pa.DataType:
    if name not in _TYPES:
        raise _refused(name)
    return _TYPES[name]


def _list_of(kind: pa.DataType, nullable: bool = True) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable))


def _decimal(precision: int, scale: int) -> pa.DataType:
    if not 0 < precision <= 38 or not 0 <= scale <= precision:
        raise ConfigurationError(f"DECIMAL({precision},{scale}) has more than 38 digits, or a scale above its digits")
    return pa.decimal128(precision, scale)


def _refused(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"the type {name!r:.50} is none that is read without Spark; there are {', '.join(_TYPES)}, decimal(p,s), "
        "array<…>, map<…, …> and struct<…>"
    )
