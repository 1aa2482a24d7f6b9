"""Tables of the database: their columns, how values are drawn and written, and how both sides are read back.

A value is a Python value of one type on each side: as it is drawn, as the database returns it, and as the Delta table
returns it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import Any

Key = tuple[Any, ...]
Row = tuple[Any, ...]

DEBEZIUM = {"decimal.handling.mode": "string", "time.precision.mode": "isostring"}
"""Settings of the connector by which every value has a text that the job's JSON format takes."""
_TEXTS = (
    "",
    " ",
    "null",
    "é",
    "🙂 emoji",
    "quote \" and '",
    "back\\slash \\n",
    "line\nbreak\ttab",
    "{}",
    ":name",
    "$1",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Kind:
    """A type of columns.

    Args:
        sql: the type in PostgreSQL.
        ddl: the type in the job's schema, and in the Delta table.
        draw: draws a value.
        literal: writes a value as SQL; by default as a quoted string of it.
        select: an expression of which `row_to_json` makes what `parse` takes.
        parse: turns the value of a column in the database's JSON into the value as it was drawn.
    """

    sql: str
    ddl: str
    draw: Callable[[Random], Any]
    literal: Callable[[Any], str] = lambda value: quoted(str(value))
    select: str = "{}"
    parse: Callable[[Any], Any] = lambda value: value


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _text(random: Random) -> str:
    return random.choice(_TEXTS) + "".join(random.choices("abcxyzäß€ ", k=random.randrange(20)))


def _moment(random: Random) -> datetime:
    return _EPOCH + timedelta(microseconds=random.randrange(-(10**15), 10**16))


def _day(random: Random) -> str:
    return f"{date(1600, 1, 1) + timedelta(random.randrange(300_000))}Z"


def _document(random: Random) -> str:
    # As PostgreSQL writes it: keys in the order of their length, blanks behind colons and commas.
    return json.dumps({"a": random.randrange(100), "bb": [None, True, "é"]}, ensure_ascii=False)


def _long_text(random: Random) -> str:
    """A text that PostgreSQL stores outside of the row, because it does not compress to 2 kB."""
    return "".join(random.choices("0123456789abcdef", k=random.choice((5, 6000))))


BIGINT = Kind("bigint", "BIGINT", lambda random: random.randrange(-(1 << 63), 1 << 63))
SMALL_KEY = Kind("bigint", "BIGINT", lambda random: random.randrange(2000))
TENANT = Kind("integer", "INT", lambda random: random.randrange(5))
INTEGER = Kind("integer", "INT", lambda random: random.randrange(-(1 << 31), 1 << 31))
BOOLEAN = Kind("boolean", "BOOLEAN", lambda random: random.random() < 0.5)
TEXT = Kind("text", "STRING", _text)
LONG_TEXT = Kind("text", "STRING", _long_text)
DOUBLE = Kind("double precision", "DOUBLE", lambda random: random.uniform(-1, 1) * 10.0 ** random.randrange(-200, 200))
NUMERIC = Kind(
    "numeric(12,2)",
    "DECIMAL(12,2)",
    lambda random: Decimal(random.randrange(-(10**12) + 1, 10**12)) / 100,
    select="{}::text",
    parse=Decimal,
)
DATE = Kind("date", "STRING", _day, select="""{} || 'Z'""")
"""Debezium writes a date as `2026-11-27Z`, which is no DATE of the job's JSON format."""
TIMESTAMP = Kind("timestamp", "TIMESTAMP", _moment, select="""{} || 'Z'""", parse=datetime.fromisoformat)
"""Debezium writes a timestamp without a zone with a `Z`."""
TIMESTAMP_WITH_ZONE = Kind("timestamptz", "TIMESTAMP", _moment, parse=datetime.fromisoformat)
UUID = Kind("uuid", "STRING", lambda random: str(uuid.UUID(int=random.getrandbits(128))))
BYTES = Kind(
    "bytea",
    "BINARY",
    lambda random: random.randbytes(random.randrange(20)),
    literal=lambda value: f"'\\x{value.hex()}'",
    select="encode({}, 'hex')",
    parse=bytes.fromhex,
)
DOCUMENT = Kind("jsonb", "STRING", _document, select="{}::text")
LIST = Kind(
    "integer[]",
    "ARRAY<INT>",
    lambda random: random.choices([None, 1, -7, 1 << 30], k=random.randrange(5)),
    literal=lambda value: quoted("{" + ",".join("NULL" if each is None else str(each) for each in value) + "}"),
)


@dataclass(frozen=True)
class Shape:
    """Columns that several tables have.

    Args:
        partitions: number of partitions of a table's topic.
        whole_before: whether the write-ahead log has the whole row before a change (REPLICA IDENTITY FULL). Otherwise
            it has the key of a deleted row, and no long text that a change leaves as it is.
    """

    name: str
    keys: Mapping[str, Kind]
    values: Mapping[str, Kind]
    partitions: int = 1
    whole_before: bool = False


SHAPES = (
    Shape("orders", {"id": SMALL_KEY}, {"name": TEXT, "amount": NUMERIC, "paid": BOOLEAN, "count": INTEGER}),
    Shape("visits", {"tenant": TENANT, "id": SMALL_KEY}, {"at": TIMESTAMP, "seen": TIMESTAMP_WITH_ZONE}, 3),
    Shape("codes", {"code": TEXT}, {"day": DATE, "weight": DOUBLE, "big": BIGINT}, 2),
    Shape("things", {"id": UUID}, {"document": DOCUMENT, "numbers": LIST, "picture": BYTES}),
    Shape("texts", {"id": SMALL_KEY}, {"body": LONG_TEXT, "title": TEXT, "version": INTEGER}, 2, whole_before=True),
)


@dataclass(frozen=True)
class Table:
    """A table of the database, its topic, and the Delta table of the topic's name."""

    name: str
    shape: Shape
    schemas: bool = field(default=False)
    """Whether each record holds its schema, and its envelope within `payload`."""

    @property
    def connector(self) -> str:
        """Return the name of the connector that captures the table."""
        return "within" if self.schemas else "plain"

    @property
    def topic(self) -> str:
        return f"{self.connector}.public.{self.name}"

    @cached_property
    def columns(self) -> dict[str, Kind]:
        return {**self.shape.keys, **self.shape.values}

    @property
    def create(self) -> str:
        """Return the statements that create the table."""
        keys = [f'"{name}" {kind.sql} NOT NULL' for name, kind in self.shape.keys.items()]
        values = [f'"{name}" {kind.sql}' for name, kind in self.shape.values.items()]
        key = ", ".join(f'"{name}"' for name in self.shape.keys)
        full = f"ALTER TABLE {self.name} REPLICA IDENTITY FULL;" if self.shape.whole_before else ""
        return f"CREATE TABLE {self.name} ({', '.join(keys + values)}, PRIMARY KEY ({key}));{full}"

    @property
    def ddl(self) -> str:
        """Return the schema of the records' values, for the job."""
        row = "STRUCT<" + ", ".join(f"`{name}`: {kind.ddl}" for name, kind in self.columns.items()) + ">"
        return self._document({"before": row, "after": row, "op": "STRING", "ts_ms": "BIGINT"})

    @property
    def key_ddl(self) -> str:
        """Return the schema of the records' keys, for the job."""
        return self._document({f"`{name}`": kind.ddl for name, kind in self.shape.keys.items()})

    def _document(self, fields: Mapping[str, str]) -> str:
        if self.schemas:
            return "payload STRUCT<" + ", ".join(f"{name}: {kind}" for name, kind in fields.items()) + ">"
        return ", ".join(f"{name} {kind}" for name, kind in fields.items())

    @property
    def select(self) -> str:
        """Return a query for all rows, each as a line of JSON: a list of the columns' values."""
        columns = ", ".join(kind.select.format(f'"{name}"') for name, kind in self.columns.items())
        return f"SELECT json_build_array({columns})::text FROM {self.name}"

    def parse(self, lines: str) -> dict[Key, Row]:
        """Return the rows that `select` prints, by key."""
        kinds = list(self.columns.values())
        rows = [
            tuple(
                None if value is None else kind.parse(value)
                for kind, value in zip(kinds, json.loads(line), strict=True)
            )
            for line in lines.split("\n")
            if line
        ]
        return self.by_key(rows)

    def by_key(self, rows: Sequence[Row]) -> dict[Key, Row]:
        """Return the rows by key.

        Raises:
            ValueError: two rows have the same key.
        """
        found = {row[: len(self.shape.keys)]: row for row in rows}
        if len(found) < len(rows):
            raise ValueError(f"{self.name} has {len(rows)} rows, but {len(found)} keys")
        return found


def tables(count: int) -> list[Table]:
    """Return tables of all shapes in turn. Records of every other table hold their schemas."""
    return [
        Table(f"{SHAPES[number % len(SHAPES)].name}_{number:02d}", SHAPES[number % len(SHAPES)], number % 2 == 1)
        for number in range(count)
    ]
