"""Tokens of SQL, and SQL's names of types and lists of columns.

`SqlReader` reads lists of columns, such as `id BIGINT NOT NULL, tags ARRAY<STRING>`. Columns have the Arrow types that
pyspark gives them (`to_arrow_schema`). TIMESTAMP is an instant. Types for which pyspark has no Arrow type, such as
VARCHAR(n), INTERVAL and VARIANT, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum, auto
from typing import Any, NamedTuple, TypeVar

import orjson
import pyarrow as pa

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.conform import list_of

T = TypeVar("T")
NULL, BOOLEAN, STRING, BINARY, DATE = pa.null(), pa.bool_(), pa.string(), pa.binary(), pa.date32()
INT, BIGINT, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
TIMESTAMP, TIMESTAMP_NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
MAX_PRECISION = 38
_MAX_NUMBER = 1000
"""Maximum number of characters of a number. Python does not parse integers of more than 4,300 digits."""
_TYPES = {
    "BOOLEAN": BOOLEAN, "TINYINT": pa.int8(), "BYTE": pa.int8(), "SMALLINT": pa.int16(), "SHORT": pa.int16(),
    "INT": INT, "INTEGER": INT, "BIGINT": BIGINT, "LONG": BIGINT, "FLOAT": FLOAT, "REAL": FLOAT, "DOUBLE": DOUBLE,
    "STRING": STRING, "BINARY": BINARY, "DATE": DATE, "TIMESTAMP": TIMESTAMP, "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}  # fmt: skip
_NAMES = {NULL: "NULL", **{kind: name for name, kind in reversed(_TYPES.items())}}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<name>[A-Z_]\w*)"
    r"|(?P<quoted>`(?:[^`]|``)+`)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?(?:BD|[DLSY])?)(?![\w.])|(?P<word>\d\w*)"
    r"|(?P<mark><=>|<=|>=|<>|!=|==|\|\||::|[-+*/%=<>(),.!:])|(?P<end>\Z))",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)


class TokenKind(StrEnum):
    """Kind of a token. A `WORD` begins with a digit, and is a name in a list of columns, but not in an expression."""

    NAME = auto()
    WORD = auto()
    QUOTED = auto()
    TEXT = auto()
    NUMBER = auto()
    MARK = auto()
    END = auto()


class SqlError(ValueError):
    """Error for a text that is not SQL, or is SQL that this package does not read.

    The message, such as "it ends too soon", follows the text in the error that the user sees.
    """


class SqlTypeError(SqlError):
    """Error for SQL with an unknown type or column, or with types that an operation does not support."""


class Token(NamedTuple):
    kind: TokenKind
    text: str
    start: int


class SqlReader:
    """Reader of a text's tokens, one after another.

    Methods named after a part of SQL, such as `columns`, return that part and consume its tokens. They raise SqlError
    if the next tokens are not such a part.
    """

    MAX_DEPTH = 64
    HAS_COMMENTS = True
    """True if the text may have comments, which are skipped."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text, self.HAS_COMMENTS)
        """Tokens of the text; the last one marks the end of the text."""
        self._at = 0
        self._depth = 0

    @property
    def now(self) -> Token:
        return self.tokens[self._at]

    @property
    def ahead(self) -> Token:
        """Return the token that follows the next token, which is `now`."""
        return self.tokens[min(self._at + 1, len(self.tokens) - 1)]

    def next(self) -> Token:
        self._at += self.now.kind != TokenKind.END
        return self.tokens[self._at - 1]

    def takes(self, word: str) -> bool:
        """Consume the next token if it is `word`, a word in lower case or a mark; return whether it is."""
        found = self.now.kind in (TokenKind.NAME, TokenKind.MARK) and self.now.text.lower() == word
        self._at += found
        return found

    def expect(self, word: str) -> None:
        if not self.takes(word):
            raise self.unexpected()

    def token(self, *kinds: TokenKind) -> Token:
        """Consume the next token, whose kind must be one of `kinds`, and return it."""
        if self.now.kind not in kinds:
            raise self.unexpected()
        return self.next()

    def expect_end(self) -> None:
        self.token(TokenKind.END)

    def unexpected(self, fix: str = "") -> SqlError:
        return SqlError(
            f"{self.now.text!r:.40} is not expected{fix}" if self.now.kind != TokenKind.END else "it ends too soon"
        )

    @contextmanager
    def within(self) -> Iterator[None]:
        """Count the block as one level of nesting; raise SqlTypeError if it exceeds `MAX_DEPTH`."""
        self._depth += 1
        if self._depth > self.MAX_DEPTH:
            raise SqlTypeError(f"it is nested more than {self.MAX_DEPTH} levels deep")
        yield
        self._depth -= 1

    def separated(self, part: Callable[[], T], separator: str = ",") -> list[T]:
        """Parse one or more parts with `separator` between them, each by calling `part`, and return the results."""
        parts = [part()]
        while self.takes(separator):
            parts.append(part())
        return parts

    def columns(self) -> list[pa.Field]:
        return self.separated(self._column)

    def _column(self) -> pa.Field:
        name = unquoted(self.token(TokenKind.NAME, TokenKind.QUOTED, TokenKind.WORD))
        self.takes(":")
        kind, nullable = self.type(), True
        if self.takes("not"):
            self.expect("null")
            nullable = False
        if self.takes("comment"):
            self.token(TokenKind.TEXT)
        return pa.field(name, kind, nullable)

    def type(self) -> pa.DataType:
        name = self.token(TokenKind.NAME).text.upper()
        with self.within():
            if name == "STRUCT":
                return pa.struct(self._fields())
            if name in ("ARRAY", "MAP"):
                return self._container(name)
            if name in _DECIMALS:
                return self._decimal()
        if name not in _TYPES:
            raise SqlTypeError(
                f"the type {name:.50} is not on the list: {', '.join(_TYPES)}, DECIMAL(p,s), ARRAY<…>, MAP<…, …>, "
                "STRUCT<…>. For VARCHAR(n) and CHAR(n), write STRING, and create the table with these types before: "
                "its lengths then hold"
            )
        return _TYPES[name]

    def _fields(self) -> list[pa.Field]:
        if self.takes("<>"):
            return []
        self.expect("<")
        if self.takes(">"):
            return []
        fields = self.columns()
        self.expect(">")
        return fields

    def _container(self, name: str) -> pa.DataType:
        self.expect("<")
        kinds = [self.type()]
        if name == "MAP":
            self.expect(",")
            kinds.append(self.type())
        self.expect(">")
        return pa.map_(*kinds) if name == "MAP" else list_of(kinds[0])

    def _decimal(self) -> pa.DataType:
        sizes = [10, 0]
        if self.takes("("):
            sizes[0] = self._size()
            if self.takes(","):
                sizes[1] = self._size()
            self.expect(")")
        precision, scale = sizes
        if not 0 < precision <= MAX_PRECISION or scale > precision:
            raise SqlTypeError(f"DECIMAL({precision},{scale}) has more than 38 digits, or a scale above its digits")
        return pa.decimal128(precision, scale)

    def _size(self) -> int:
        if not self.now.text.isdecimal():
            raise self.unexpected()
        return int(self.next().text)


def _tokens(text: str, has_comments: bool) -> list[Token]:
    found: list[Token] = []
    at = 0
    while not found or found[-1].kind != TokenKind.END:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise SqlError(f"{text[at:].lstrip()[:20]!r} is not expected")
        at = match.end()
        if match.lastgroup in ("number", "word") and len(match[0].strip()) > _MAX_NUMBER:
            raise SqlError(f"it has a number of more than {_MAX_NUMBER:,} characters")
        if match.lastgroup == "comment" and has_comments:
            continue
        if match.lastgroup == "comment":
            raise SqlError("it has a comment: remove it")
        found.append(Token(TokenKind(match.lastgroup), match[match.lastgroup], match.start(match.lastgroup)))
    return found


def unquoted(token: Token) -> str:
    """Return the name in a token, without back quotes around it."""
    return token.text[1:-1].replace("``", "`") if token.kind == TokenKind.QUOTED else token.text


def parse_spark_schema(text: str) -> pa.Schema:
    """Return the Arrow schema that `text` describes: a list of columns, one STRUCT<…>, or Spark's JSON of a struct.

    Raises:
        ConfigurationError: a type is not supported, or the types are nested too deep.
        ValueError: the text is not a schema.
    """
    try:
        if text.lstrip().startswith("{"):
            return pa.schema(list(_of_json(orjson.loads(text))))
        reader = SqlReader(text)
        is_struct = reader.now.text.lower() == "struct" and reader.ahead.text in ("<", "<>")
        fields = list(reader.type()) if is_struct else reader.columns()
        reader.expect_end()
    except SqlTypeError as error:
        raise ConfigurationError(str(error)) from error
    return pa.schema(fields)


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type for the SQL name of a type, such as `ARRAY<INT>`; raise SqlError for an unknown type."""
    reader = SqlReader(text)
    kind = reader.type()
    reader.expect_end()
    return kind


def _of_json(kind: Any, level: int = 0) -> pa.DataType:
    if level > SqlReader.MAX_DEPTH:
        raise SqlTypeError(f"it is nested more than {SqlReader.MAX_DEPTH} levels deep")
    if not isinstance(kind, Mapping):
        return parse_type(str(kind))
    match kind["type"]:
        case "struct":
            fields = [
                (each["name"], _of_json(each["type"], level + 1), each.get("nullable", True)) for each in kind["fields"]
            ]
            return pa.struct([pa.field(*field) for field in fields])
        case "array":
            return list_of(_of_json(kind["elementType"], level + 1), kind["containsNull"])
        case "map":
            key, value = _of_json(kind["keyType"], level + 1), _of_json(kind["valueType"], level + 1)
            return pa.map_(key, pa.field("value", value, kind["valueContainsNull"]))
    return parse_type(str(kind["type"]))


def sql_name(kind: pa.DataType) -> str:
    """Return Spark SQL's name of an Arrow type."""
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"STRUCT<{sql_columns(kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)}, {sql_name(kind.item_type)}>"
    return f"ARRAY<{sql_name(kind.value_type)}>" if pa.types.is_list(kind) else _NAMES.get(kind, str(kind).upper())


def sql_columns(fields: Iterable[pa.Field]) -> str:
    """Return the fields as the SQL text of a list of columns, without NOT NULL."""
    return ", ".join(f"{_written(field.name)} {sql_name(field.type)}" for field in fields)


def _written(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
