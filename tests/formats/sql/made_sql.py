"""Made-up SQL expressions of the list, and rows of hostile values for them."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

COLUMNS = pa.schema(
    [
        ("tiny", pa.int8()), ("i", pa.int32()), ("j", pa.int32()), ("big", pa.int64()), ("large", pa.int64()),
        ("f", pa.float32()), ("d", pa.float64()), ("e", pa.float64()), ("m", pa.decimal128(12, 2)),
        ("n", pa.decimal128(10, 4)), ("s", pa.string()), ("t", pa.string()), ("b", pa.bool_()), ("c", pa.bool_()),
        ("day", pa.date32()), ("at", pa.timestamp("us", tz="UTC")), ("raw", pa.binary()),
        ("nested", pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.struct([("b", pa.bool_())]))])),
    ]
)  # fmt: skip
_FLOATS = [0.0, -0.0, 1.5, -2.5, float("nan"), float("inf"), float("-inf"), 2.0**63, -(2.0**63), 2.0**31, 1e-300, 0.1]
_NUMBERS_AS_TEXT = [
    "1", "-7", "+9", "007", " 12 ", "\t3\n", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "1.5", "-.5", "5.", "1e3", "1E-400", "1e400", "NaN", "nan", "Infinity", "-inf", "+Infinity", "INF", "1d", "2.5F",
    "0x1p3", "-0x.8P1", "1_000", "١٢", "-", "+", ".", "e5", "--1", "+-1", "00000000000000000000001", "1 2", "\x001\x00",
    "0.1", "123456789.123456789", "-0", "1e", "inf5", "\xa05", "\x7f6", "\x857",
]  # fmt: skip
_TEXTS = [
    "", " ", "a", "A", "ab%_", "%", "Straße", "ΑΣ", "ΟΔΥΣΣΕΥΣ", "İi", "ŉ", "ﬁ", "𝒳😀", "😀a😀", "e\u0301", "\0", "a\0b",
    "line\nline", "\u2028", "  x  ", "\tx\t", "true", "T", " yes ", "No", "0", "ORDER-1", "order-22", "ǆ", "ᾳ", "𐐀",
]  # fmt: skip
_INTS = [0, 1, -1, 7, 100, -128, 127, 32767, -32768]


def rows(random: Random, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([_value(random, field.type) for _ in range(count)], field.type) for field in COLUMNS], schema=COLUMNS
    )


def _value(random: Random, kind: pa.DataType) -> Any:
    if random.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(random, field.type) for field in kind}
    if pa.types.is_boolean(kind):
        return random.random() < 0.5
    if pa.types.is_string(kind):
        return random.choice(_TEXTS if random.random() < 0.6 else _NUMBERS_AS_TEXT)
    if pa.types.is_binary(kind):
        return random.choice([b"", b"\0", b"\xff\xfe", b"abc", b"ab"])
    if pa.types.is_floating(kind):
        return random.choice(_FLOATS) if random.random() < 0.7 else random.uniform(-1e6, 1e6)
    if pa.types.is_decimal(kind):
        digits = random.choice([1, kind.precision, random.randrange(1, kind.precision + 1)])
        return Decimal(random.choice([-1, 1]) * random.randrange(10**digits)).scaleb(-kind.scale)
    bits = 27 if pa.types.is_date(kind) else kind.bit_width
    edges = [-(1 << (bits - 1)), (1 << (bits - 1)) - 1]
    value = random.choice([*edges, *_INTS, random.randrange(edges[0], edges[1]) >> random.randrange(bits)])
    return max(edges[0], min(edges[1], value))


class Expressions:
    """Expressions of the list with the types of `COLUMNS`; each has the form that a user would write."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def some(self, depth: int = 3) -> str:
        """An expression of any type."""
        return self.of(
            self._random.choice(["int", "big", "double", "float", "decimal", "text", "bool", "day", "at"]), depth
        )

    def of(self, kind: str, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.15:
            return self._leaf(kind)
        if self._random.random() < 0.2:
            return self._branches(kind, depth - 1)
        made = getattr(self, f"_{kind}")
        text: str = made(depth - 1)
        return text

    def _leaf(self, kind: str) -> str:
        leaves = {
            "int": ["i", "j", "tiny", "nested.x", "0", "-1", "7", "2147483647", "-2147483648", "3S"],
            "big": ["big", "large", "9223372036854775807", "5L", "-9223372036854775808", "3000000000"],
            "double": ["d", "e", "1e3", "-2.5D", "0.0D", "1e-3"],
            "float": ["f", "CAST(tiny AS FLOAT)"],
            "decimal": ["m", "n", "2.5", "-0.01", "100BD", "0.05"],
            "text": ["s", "t", "nested.y", "''", "'a'", "'Straße'", "'😀'", "' x '", "CAST(NULL AS STRING)"],
            "bool": ["b", "c", "TRUE", "FALSE", "nested.z.b", "CAST(NULL AS BOOLEAN)"],
            "day": ["day", "DATE '2024-02-29'", "DATE '0001-01-01'"],
            "at": ["at", "TIMESTAMP '2024-02-29 23:59:59.999999+00:00'", "TIMESTAMP '1969-12-31T23:59:59Z'"],
        }
        return self._random.choice(leaves[kind])

    def _branches(self, kind: str, depth: int) -> str:
        def value() -> str:
            return self._random.choice(["NULL", self.of(kind, depth), self.of(kind, depth)])

        one, two, sure, condition = value(), value(), self.of(kind, depth), self.of("bool", depth)
        return self._random.choice(
            [
                f"CASE WHEN {condition} THEN {one} WHEN {self.of('bool', depth)} THEN {two} ELSE {sure} END",
                f"CASE WHEN {condition} THEN {sure} END",
                f"CASE {self.of('int', depth)} WHEN {self.of('int', depth)} THEN {sure} ELSE {one} END",
                f"if({condition}, {one}, {sure})",
                f"coalesce({one}, {sure}, {two})",
                f"nvl({sure}, {one})",
                f"nullif({sure}, {self.of(kind, depth)})",
            ]
        )

    def _one(self, *texts: str) -> str:
        return self._random.choice(texts)

    def _op(self, left: str, op: str, right: str) -> str:
        """With or without parentheses, so that both parsers must know how strongly an operator binds."""
        return self._one(f"({left}) {op} ({right})", f"({left} {op} {right})", f"{left} {op} {right}")

    def _int(self, depth: int) -> str:
        source = self._one("big", "double", "float", "text", "int")
        name = self._one("try_add", "try_subtract", "try_multiply")
        return self._one(
            f"{name}({self.of('int', depth)}, {self.of('int', depth)})",
            f"({self.of('int', depth)}) % {self._one('1', '7', '100')}",
            f"length({self.of('text', depth)})",
            "length(raw)",
            f"TRY_CAST({self.of(source, depth)} AS {self._one('INT', 'SMALLINT', 'TINYINT')})",
            f"CAST({self.of('bool', depth)} AS INT)",
            f"{self._one('year', 'month', 'day', 'dayofmonth')}({self.of(self._one('day', 'at'), depth)})",
            f"{self._one('hour', 'minute', 'second')}({self.of('at', depth)})",
        )

    def _big(self, depth: int) -> str:
        name = self._one("try_add", "try_subtract", "try_multiply")
        return self._one(
            f"{name}({self.of('big', depth)}, {self.of(self._one('big', 'int'), depth)})",
            f"{self.of('big', 0)} % 1000",
            f"CAST({self.of('int', depth)} AS BIGINT)",
            f"TRY_CAST({self.of(self._one('double', 'float', 'text'), depth)} AS BIGINT)",
            f"{self._one('unix_seconds', 'unix_millis', 'unix_micros')}({self.of('at', depth)})",
        )

    def _double(self, depth: int) -> str:
        return self._one(
            self._op(
                self.of("double", depth),
                self._one("+", "-", "*"),
                self.of(self._one("double", "int", "big", "decimal"), depth),
            ),
            f"({self.of(self._one('double', 'int', 'big'), depth)}) / {self._one('100', '2.5', '-3e2')}",
            f"try_divide({self.of(self._one('double', 'int'), depth)}, {self.of(self._one('double', 'big'), depth)})",
            f"-({self.of('double', depth)})",
            f"abs({self.of('double', depth)})",
            f"CAST({self.of(self._one('int', 'big', 'float', 'decimal'), depth)} AS DOUBLE)",
            f"TRY_CAST({self.of('text', depth)} AS DOUBLE)",
        )

    def _float(self, depth: int) -> str:
        return self._one(
            self._op(self.of("float", depth), self._one("+", "-", "*"), self.of("float", depth)),
            f"-({self.of('float', depth)})",
            f"CAST({self.of('int', depth)} AS FLOAT)",
        )

    def _decimal(self, depth: int) -> str:
        return self._one(
            self._op(self.of("decimal", 0), self._one("+", "-", "*"), self.of(self._one("decimal", "int"), 0)),
            f"-({self.of('decimal', depth)})",
            f"CAST({self.of('int', depth)} AS DECIMAL(12,2))",
            "CAST(m AS DECIMAL(20,6))",
            f"TRY_CAST({self.of('decimal', depth)} AS DECIMAL({self._one('10,2', '5,1', '3,0', '12,6')}))",
            f"TRY_CAST({self.of(self._one('int', 'big'), depth)} AS DECIMAL({self._one('10,2', '5,1', '19,0')}))",
        )

    def _text(self, depth: int) -> str:
        first, size = self._one("0", "1", "2", "-2", "-9"), self._one("0", "1", "3", "-1", "99")
        old, new = self._one("'a'", "'😀'", "''", "'aa'"), self._one("''", "'b'", "'ß'")
        return self._one(
            f"{self._one('lower', 'upper', 'trim', 'ltrim', 'rtrim')}({self.of('text', depth)})",
            f"{self._one('substring', 'substr')}({self.of('text', depth)}, {first}, {size})",
            f"substring({self.of('text', depth)}, {self._one('0', '1', '-2')})",
            f"{self.of('text', 0)} || {self.of('text', 0)} || '-'",
            f"concat({self.of('text', depth)}, {self.of('text', depth)})",
            f"replace({self.of('text', depth)}, {old}, {new})",
            f"CAST({self.of(self._one('int', 'big', 'bool'), depth)} AS STRING)",
        )

    def _bool(self, depth: int) -> str:
        kind = self._one("int", "big", "double", "float", "decimal", "text", "bool", "day", "at")
        other = {
            "int": self._one("int", "big", "double", "decimal"),
            "double": self._one("double", "decimal"),
            "decimal": self._one("decimal", "double", "int"),
        }.get(kind, kind)
        left, right = self.of(kind, depth), self.of(other, depth)
        literals = {
            "int": "1, -1, 7, 100",
            "text": "'a', 'A', '', 'Straße'",
            "day": "DATE '2024-02-29', '0001-01-01', day, NULL",
            "big": "5L, 7L, 9223372036854775807, 0L",
        }
        pattern = self._one(
            "'a%'", "'%a'", "'%a%'", "'_'", "'%_a%'", "''", "'%'", "'A_%'", "'😀%'", "'line_line'", "'%.%'"
        )
        join = self._one("AND", "OR")
        wanted, at = self._one("''", "'a'", "'😀'"), self._one(*literals)
        return self._one(
            f"({left}) {self._one('=', '==', '<>', '!=', '<', '<=', '>', '>=', '<=>')} ({right})",
            f"({left}) IS {self._one('', 'NOT ')}DISTINCT FROM ({right})",
            f"({left}) {self._one('', 'NOT ')}BETWEEN ({right}) AND ({self.of(other, depth)})",
            f"{self.of('bool', depth)} {join} {self.of('bool', depth)} {self._one('AND', 'OR')} {self.of('bool', 0)}",
            f"({self.of('bool', depth)}) {self._one('AND', 'OR')} ({self.of('bool', depth)})",
            f"NOT {self.of('bool', 0)}",
            f"NOT ({self.of('bool', depth)})",
            f"({left}) IS {self._one('', 'NOT ')}NULL",
            f"({self.of('bool', depth)}) IS {self._one('', 'NOT ')}{self._one('TRUE', 'FALSE')}",
            f"({self.of(at, depth)}) {self._one('', 'NOT ')}IN ({literals[at]})",
            f"({left}) IN (({right}), NULL)",
            f"({self.of('text', depth)}) {self._one('', 'NOT ')}LIKE {pattern}",
            f"{self._one('startswith', 'endswith', 'contains')}({self.of('text', depth)}, {wanted})",
            f"isnan({self.of('double', depth)})",
            f"raw {self._one('=', '<', '>=')} CAST({self.of('text', 0)} AS BINARY)",
            f"TRY_CAST({self.of('text', depth)} AS BOOLEAN)",
            "day > '2000-01-01' OR at <= '2024-01-01 00:00:00Z'",
        )

    def _day(self, depth: int) -> str:
        return self._one(f"CAST({self.of('at', depth)} AS DATE)", f"to_date({self.of('at', depth)})")

    def _at(self, depth: int) -> str:
        return f"timestamp_micros({self.of(self._one('big', 'int'), depth)})"
