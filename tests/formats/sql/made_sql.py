"""Made-up SQL expressions of the list, and rows of hostile values for them."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from tiered_stream.formats.rows.kafka_columns import hidden
from tiered_stream.formats.rows.row_steps import RowQuery
from tiered_stream.formats.sql.parser import SqlQuery, parse_query

COLUMNS = pa.schema(
    [
        ("tiny", pa.int8()), ("small", pa.int16()), ("i", pa.int32()), ("j", pa.int32()), ("big", pa.int64()),
        ("large", pa.int64()), ("f", pa.float32()), ("d", pa.float64()), ("e", pa.float64()),
        ("m", pa.decimal128(12, 2)), ("n", pa.decimal128(10, 4)), ("w", pa.decimal128(38, 10)), ("s", pa.string()),
        ("t", pa.string()), ("b", pa.bool_()), ("c", pa.bool_()), ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us")), ("raw", pa.binary()),
        ("nested", pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.struct([("b", pa.bool_())]))])),
        ("all", pa.int32()), ("as", pa.bool_()),
    ]
)  # fmt: skip
HIDDEN = [hidden("offset", pa.int64()), hidden("timestamp", pa.timestamp("us", tz="UTC"))]


def parsed(select: str | None, where: str | None = None) -> SqlQuery:
    query = parse_query(select, where)
    assert query is not None
    return query


def selected(select: str, batch: pa.RecordBatch, zone: str = "UTC", columns: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the columns of a select list, planned for `columns` or for the batch's; the rows have offsets."""
    numbers = pa.array(range(batch.num_rows), pa.int64())
    arrays = [*batch.columns, numbers, numbers.cast(HIDDEN[1].type)]
    positioned = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*batch.schema, *HIDDEN]))
    return RowQuery(parsed(select), columns or batch.schema, zone).apply(positioned)


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
_IN_NUMBERS = "0123456789+-.eEdDfFxXpPnNaAiIty \t\n\0\x1f\x7f\x85_,"
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
        return _text(random)
    if pa.types.is_binary(kind):
        return random.choice([b"", b"\0", b"\xff\xfe", b"abc", b"ab"])
    if pa.types.is_floating(kind):
        return random.choice(_FLOATS) if random.random() < 0.7 else random.uniform(-1e6, 1e6)
    if pa.types.is_decimal(kind):
        digits = random.choice([1, kind.precision, random.randrange(1, kind.precision + 1)])
        return Decimal(random.choice([-1, 1]) * random.randrange(10**digits)).scaleb(-kind.scale)
    bits = kind.bit_width
    edges = [-(1 << (bits - 1)), (1 << (bits - 1)) - 1]
    value = random.choice([*edges, *_INTS, random.randrange(edges[0], edges[1]) >> random.randrange(bits)])
    return max(edges[0], min(edges[1], value))


def _text(random: Random) -> str:
    size = random.randrange(1, 9)
    match random.randrange(10):
        case 0:
            return "".join(random.choices(_IN_NUMBERS, k=size))
        case 1:
            return "".join(map(chr, (random.choice([random.randrange(0xD800), random.randrange(0xE000, 0x110000)])
                                     for _ in range(size))))  # fmt: skip
        case 2:
            return str(random.choice(_INTS) * 10 ** random.randrange(20)) + random.choice(["", ".", ".5", "e-3", "L"])
        case 3 | 4 | 5:
            return random.choice(_NUMBERS_AS_TEXT)
    return random.choice(_TEXTS)


_NUMBERS = ["int", "big", "double", "float", "decimal"]
_EDGES = ["0", "1", "2", "-1", "-2", "-9", "99", "2147483647", "-2147483647", "-2147483648", "3Y", "-2S"]
_DECIMALS = [f"DECIMAL({size})" for size in ("10,2", "5,1", "3,0", "12,6", "19,0", "38,9", "38,20", "38,38")]
_MOMENTS = ["'2024-02-29 23:59:59.999999Z'", "'1969-12-31T23:59:59+00:00'", "'2024-02-29'", "'0001-01-01 00:00:00Z'"]
_DAYS = ["'2024-02-29'", "'0001-01-01'", "'9999-12-31'", "DATE '1970-01-01'"]


_COMPARED = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


class Expressions:
    """Expressions of the list with the types of `COLUMNS`; each has the form that a user would write.

    Operands are mostly written without parentheses. So Spark and the list may give an expression another type than the
    one that it was made for, and the list may refuse it.
    """

    def __init__(self, random: Random) -> None:
        self._random = random

    def some(self, depth: int = 3) -> str:
        """An expression of any type."""
        return self.of(self._random.choice([*_NUMBERS, "text", "bool", "day", "at", "local", "bytes", "struct"]), depth)

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
            "int": ["i", "J", "`all`", "tiny", "small", "`nested`.X", "0", "-1", "2147483647", "-2147483648", "3S"],
            "big": ["big", "large", "9223372036854775807", "5L", "-9223372036854775808", "3000000000"],
            "double": ["d", "e", "1e3", "-2.5D", "0.0D", "1e-3"],
            "float": ["f", "CAST(tiny AS FLOAT)", "small::float"],
            "decimal": ["m", "n", "w", "2.5", "12345678901234567890.5", "-0.01", "100BD", "0.05"],
            "text": ["s", "t", "nested.y", "''", "'a'", "'Straße'", "'😀'", "' x '", "CAST(NULL AS STRING)", "'it''s'"],
            "bool": ["b", "c", "`as`", "TRUE", "FALSE", "nested.z.b", "CAST(NULL AS BOOLEAN)"],
            "day": ["day", "DATE '2024-02-29'", "DATE '0001-01-01'"],
            "at": ["at", "at", "TIMESTAMP '2024-02-29 23:59:59.999999+00:00'", "TIMESTAMP '1969-12-31T23:59:59Z'"],
            "local": ["local"],
            "bytes": ["raw", "CAST(NULL AS BINARY)"],
            "struct": ["nested", "nested.z"],
        }
        return self._random.choice(leaves[kind])

    def _branches(self, kind: str, depth: int) -> str:
        def value() -> str:
            other = self._one(*_NUMBERS) if kind in _NUMBERS and self._random.random() < 0.2 else kind
            return self._random.choice(["NULL", self.of(other, depth), self.of(other, depth)])

        one, two, sure, condition = value(), value(), self.of(kind, depth), self.of("bool", depth)
        return self._random.choice(
            [
                f"CASE WHEN {condition} THEN {one} WHEN {self.of('bool', depth)} THEN {two} ELSE {sure} END",
                f"CASE WHEN {condition} THEN {sure} END",
                f"CASE {self.of('int', depth)} WHEN {self.of('int', depth)} THEN {sure} ELSE {one} END",
                f"if({condition}, {one}, {sure})",
                f"coalesce({one}, {sure}, {two})",
                f"nvl({sure}, {one})",
                f"nullif({sure}, {self._like(kind, depth)})",
                f"CASE {self.of(kind, depth)} WHEN {self._like(kind, depth)} THEN {sure} ELSE {two} END",
            ]
        )

    def _like(self, kind: str, depth: int) -> str:
        """A value to compare with one of `kind`: of this kind, of another kind of number, or a literal."""
        literals = {"at": _MOMENTS, "day": _DAYS}.get(kind, [])
        if self._random.random() < 0.1:
            return "NULL"
        if literals and self._random.random() < 0.5:
            return self._one(*literals)
        return self.of(self._one(*_NUMBERS) if kind in _NUMBERS and self._random.random() < 0.4 else kind, depth)

    def _one(self, *texts: str) -> str:
        return self._random.choice(texts)

    def _in(self, text: str) -> str:
        """An operand, mostly without parentheses, so that both parsers must know how strongly an operator binds."""
        return f"({text})" if self._random.random() < 0.3 else text

    def _operand(self, depth: int, *kinds: str) -> str:
        return self._in(self.of(self._one(*kinds), depth))

    def _op(self, left: str, op: str, right: str) -> str:
        return self._in(f"{self._in(left)} {op} {self._in(right)}")

    def _compared(self, depth: int) -> str:
        """Comparisons and predicates next to each other."""
        kind = self._one("bool", "bool", "int", "double", "text", "float")
        text = f"{self._operand(depth, kind)} {self._one(*_COMPARED)} {self._in(self._like(kind, depth))}"
        for _ in range(self._random.randrange(3)):
            value, other = (self._operand(0, "bool", "bool", kind) for _ in range(2))
            text += " " + self._one(
                f"{self._one(*_COMPARED)} {value}", f"{self._one(*_COMPARED)} {value}",
                f"IS {self._one('', 'NOT ')}{self._one('NULL', 'TRUE', 'FALSE')}",
                f"{self._one('', 'NOT ')}IN ({value}, {other})", f"{self._one('AND', 'OR')} {value}",
                f"{self._one('', 'NOT ')}BETWEEN {value} AND {other}", f"{self._one('', 'NOT ')}LIKE 'a%'",
                f"IS {self._one('', 'NOT ')}DISTINCT FROM {value}",
            )  # fmt: skip
        return self._one("", "", "NOT ", "!", "NOT NOT ") + text

    def _int(self, depth: int) -> str:
        source = self._one("big", "double", "float", "text", "int")
        name = self._one("try_add", "try_subtract", "try_multiply")
        return self._one(
            f"{name}({self.of('int', depth)}, {self.of('int', depth)})",
            f"{self._operand(depth, 'int')} % {self._one('1', '7', '100', '2147483647', '3S')}",
            f"length({self.of('text', depth)})",
            f"length({self.of('bytes', depth)})",
            f"TRY_CAST({self.of(source, depth)} AS {self._one('INT', 'SMALLINT', 'TINYINT')})",
            f"CAST({self.of('bool', depth)} AS INT)",
            f"{self._operand(depth, 'bool')}::int",
            f"{self._one('year', 'month', 'day', 'dayofmonth')}({self.of(self._one('day', 'at', 'local'), depth)})",
            f"{self._one('hour', 'minute', 'second')}({self.of(self._one('at', 'local'), depth)})",
        )

    def _big(self, depth: int) -> str:
        name = self._one("try_add", "try_subtract", "try_multiply")
        return self._one(
            f"{name}({self.of('big', depth)}, {self.of(self._one('big', 'int'), depth)})",
            f"{self.of('big', 0)} % {self._one('1000', '9223372036854775807', '7L')}",
            f"CAST({self.of('int', depth)} AS BIGINT)",
            f"{self._operand(depth, 'int')}::bigint",
            f"TRY_CAST({self.of(self._one('double', 'float', 'text'), depth)} AS BIGINT)",
            f"{self._one('unix_seconds', 'unix_millis', 'unix_micros')}({self.of('at', depth)})",
        )

    def _double(self, depth: int) -> str:
        return self._one(
            self._op(
                self.of("double", depth),
                self._one("+", "-", "*"),
                self.of(self._one("double", "int", "big", "decimal", "float"), depth),
            ),
            f"{self._operand(depth, 'double', 'int', 'big', 'float')} / {self._one('100', '2.5D', '-3e2', '7L')}",
            f"try_divide({self._operand(depth, 'double', 'int', 'float')}, {self._operand(depth, *_NUMBERS)})",
            f"-{self._operand(depth, 'double')}",
            f"- {self._operand(depth, 'double')} * {self._operand(depth, 'double', 'int')}",
            f"{self._operand(0, *_NUMBERS)} {self._one('+', '-', '*')} {self._operand(0, *_NUMBERS)} "
            f"{self._one('+', '-', '*', '/', '%')} {self._operand(0, *_NUMBERS)}",
            f"abs({self.of('double', depth)})",
            f"CAST({self.of(self._one('int', 'big', 'float', 'decimal'), depth)} AS DOUBLE)",
            f"TRY_CAST({self.of('text', depth)} AS DOUBLE)",
        )

    def _float(self, depth: int) -> str:
        return self._one(
            self._op(self.of("float", depth), self._one("+", "-", "*"), self.of(self._one("float", *_NUMBERS), depth)),
            f"-{self._operand(depth, 'float')}",
            f"CAST({self.of('int', depth)} AS FLOAT)",
        )

    def _decimal(self, depth: int) -> str:
        return self._one(
            self._op(self.of("decimal", 0), self._one("+", "-", "*"), self.of(self._one("decimal", "int", "big"), 0)),
            f"-{self._operand(depth, 'decimal')}",
            f"CAST({self.of('int', depth)} AS DECIMAL(12,2))",
            "CAST(m AS DECIMAL(20,6))",
            f"TRY_CAST({self.of('decimal', depth)} AS {self._one(*_DECIMALS)})",
            f"TRY_CAST({self.of(self._one('int', 'big'), depth)} AS {self._one(*_DECIMALS)})",
        )

    def _text(self, depth: int) -> str:
        first, size = self._one(*_EDGES), self._one(*_EDGES)
        old, new = self._one("'a'", "'😀'", "''", "'aa'"), self._one("''", "'b'", "'ß'")
        return self._one(
            f"{self._one('lower', 'upper', 'trim', 'ltrim', 'rtrim')}({self.of('text', depth)})",
            f"{self._one('substring', 'substr')}({self.of('text', depth)}, {first}, {size})",
            f"{self._one('substring', 'substr')}({self.of('text', depth)}, {self._one(*_EDGES, '5L', '0L')})",
            f"{self._operand(depth, 'text')} || {self._operand(depth, 'text')} || '-'",
            f"concat({self.of('text', depth)}, {self.of('text', depth)})",
            f"replace({self.of('text', depth)}, {old}, {new})",
            f"CAST({self.of(self._one('int', 'big', 'bool'), depth)} AS STRING)",
        )

    def _bool(self, depth: int) -> str:
        kind = self._one(*_NUMBERS, "text", "bool", "day", "at", "local", "bytes")
        other = {
            "int": self._one("int", "big", "double", "decimal"),
            "double": self._one("double", "decimal"),
            "decimal": self._one("decimal", "double", "int"),
        }.get(kind, kind)
        left, right = self.of(kind, depth), self._like(other, depth)
        literals = {
            "int": "1, -1, 7, 100",
            "text": "'a', 'A', '', 'Straße'",
            "day": "DATE '2024-02-29', '0001-01-01', day, NULL",
            "big": "5L, 7L, 9223372036854775807, 0L",
            "at": f"{self._one(*_MOMENTS)}, TIMESTAMP '2024-02-29 23:59:59.999999+00:00'",
            "decimal": "0.05, 1, 100BD",
            "double": "0.0D, 1e3, -2.5D, 7",
        }
        pattern = self._one(
            "'a%'", "'%a'", "'%a%'", "'_'", "'%_a%'", "''", "'%'", "'A_%'", "'😀%'", "'line_line'", "'%.%'"
        )
        join = self._one("AND", "OR")
        wanted, at = self._one("''", "'a'", "'😀'"), self._one(*literals)
        return self._one(
            self._compared(depth),
            self._compared(depth),
            self._op(left, self._one(*_COMPARED), right),
            self._op(left, self._one("IS DISTINCT FROM", "IS NOT DISTINCT FROM"), right),
            f"{self._in(left)} {self._one('', 'NOT ')}BETWEEN {self._in(right)} AND {self._like(kind, depth)}",
            f"{self.of('bool', depth)} {join} {self.of('bool', depth)} {self._one('AND', 'OR')} {self.of('bool', 0)}",
            f"{self._operand(depth, 'bool')} {self._one('AND', 'OR')} {self._operand(depth, 'bool')}",
            f"{self._one('NOT ', '!')}{self._operand(depth, 'bool')}",
            f"{self._in(left)} IS {self._one('', 'NOT ')}NULL",
            f"{self._operand(depth, 'bool')} IS {self._one('', 'NOT ')}{self._one('TRUE', 'FALSE')}",
            f"{self._operand(depth, at)} {self._one('', 'NOT ')}IN ({literals[at]})",
            f"{self._in(left)} IN ({self._in(right)}, {self._like(kind, depth)})",
            f"{self._one('nested', 'nested.z', 'NULL', self._in(left))} IS {self._one('', 'NOT ')}NULL",
            f"{self._operand(depth, 'text')} {self._one('', 'NOT ')}LIKE {pattern}",
            f"{self._one('startswith', 'endswith', 'contains')}({self.of('text', depth)}, {wanted})",
            f"isnan({self.of('double', depth)})",
            f"TRY_CAST({self.of('text', depth)} AS BOOLEAN)",
            "day > '2000-01-01' OR at <= '2024-01-01 00:00:00Z'",
        )

    def _day(self, depth: int) -> str:
        moment = self.of(self._one("at", "local"), depth)
        return self._one(f"CAST({moment} AS DATE)", f"to_date({moment})")

    def _bytes(self, depth: int) -> str:
        return f"CAST({self.of('text', depth)} AS BINARY)"

    def _struct(self, depth: int) -> str:
        return self._branches("struct", depth)

    def _local(self, depth: int) -> str:
        return self._branches("local", depth)

    def _at(self, depth: int) -> str:
        return f"timestamp_micros({self.of(self._one('big', 'int'), depth)})"
