"""Tables of the database: their columns, how values are drawn and written, and how both sides are read back.

A value is a Python value of one type on each side: as it is drawn, as the database returns it, and as the Delta table
returns it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import Any

Key = tuple[Any, ...]
Row = tuple[Any, ...]

DEBEZIUM = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "heartbeat.interval.ms": "1000",
    "provide.transaction.metadata": "true",
}
"""Settings of all connectors, by which every value has a text that the job's JSON format takes."""
PLAIN, WITHIN, FLAT = "plain", "within", "flat"
"""Connectors whose records have Debezium's envelope; have it within `payload`, and their schema; and are flattened."""
FLATTENED = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
}
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
        unit: unit of the number that Debezium writes, of which the job makes a date or a timestamp (`ingest.times`).
    """

    sql: str
    ddl: str
    draw: Callable[[Random], Any]
    literal: Callable[[Any], str] = lambda value: quoted(str(value))
    select: str = "{}"
    parse: Callable[[Any], Any] = lambda value: value
    unit: str = ""


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


def _long_list(random: Random) -> list[str]:
    return [_long_text(random) for _ in range(random.randrange(3))]


def _array(values: Sequence[object]) -> str:
    return quoted("{" + ",".join(map(str, values)) + "}")


LONG_LIST = Kind("text[]", "ARRAY<STRING>", _long_list, literal=_array)
LONG_NUMBERS = Kind(
    "bigint[]",
    "ARRAY<BIGINT>",
    lambda random: [random.randrange(-(1 << 63), 1 << 63) for _ in range(random.choice((2, 1000)))],
    literal=_array,
)
LONG_UUIDS = Kind(
    "uuid[]",
    "ARRAY<STRING>",
    lambda random: [str(uuid.UUID(int=random.getrandbits(128))) for _ in range(random.choice((1, 300)))],
    literal=_array,
)
LONG_BYTES = replace(BYTES, draw=lambda random: random.randbytes(random.choice((5, 4000))))
LONG_DOCUMENT = replace(DOCUMENT, draw=lambda random: json.dumps({"a": _long_text(random)}))

_A_DAY = 86_400
_DAY = Kind(
    "date",
    "INT",
    lambda random: date(1600, 1, 1) + timedelta(random.randrange(300_000)),
    select="{}::text",
    parse=date.fromisoformat,
    unit="days",
)


def _moment_of(digits: int, unit: str) -> Kind:
    """Timestamps with so many digits behind the point, which Debezium writes as numbers of the unit."""
    step = 10 ** (6 - digits)
    return Kind(
        f"timestamp({digits})",
        "BIGINT",
        lambda random: _EPOCH + timedelta(microseconds=random.randrange(-(10**15), 9 * 10**15) // step * step),
        select="{} || 'Z'",
        parse=datetime.fromisoformat,
        unit=unit,
    )


def _counted(sql: str, ddl: str, first: int, end: int, digits: int, second: int) -> Kind:
    """Times that stay numbers, of which `second` are a second: of the seconds from `first` on and before `end`."""
    step = second // 10**digits
    return Kind(
        f"{sql}({digits})",
        ddl,
        lambda random: random.randrange(first * 10**digits, end * 10**digits) * step,
        literal=lambda value: quoted(str(_EPOCH + timedelta(microseconds=value * 10**6 // second))),
        select=f"(extract(epoch from {{}}) * {second})::bigint",
    )


def _clock(digits: int, second: int) -> Kind:
    return _counted("time", "INT" if second == 1000 else "BIGINT", 0, _A_DAY, digits, second)


_NANOS = _counted("timestamp", "BIGINT", -(10**9), 9 * 10**9, 6, 10**9)
MOMENTS: dict[str, dict[str, Kind]] = {
    "adaptive": {"at": _moment_of(6, "micros"), "at_millis": _moment_of(3, "millis"), "clock": _clock(6, 10**6),
                 "clock_millis": _clock(3, 1000)},
    "adaptive_time_microseconds": {"at": _moment_of(6, "micros"), "at_millis": _moment_of(3, "millis"),
                                   "clock": _clock(6, 10**6), "clock_millis": _clock(3, 10**6)},
    "connect": {"at_millis": _moment_of(3, "millis"), "clock_millis": _clock(3, 1000)},
    "microseconds": {"at": _moment_of(6, "micros"), "at_millis": _moment_of(3, "micros"), "clock": _clock(6, 10**6),
                     "clock_millis": _clock(3, 10**6)},
    "nanoseconds": {"at": _NANOS, "clock": _clock(6, 10**9)},
}  # fmt: skip
"""Columns of dates and times that Debezium writes as numbers, by `time.precision.mode`, which names the connector."""


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


TOASTED = Shape(
    "toasted",
    {"id": SMALL_KEY},
    {"body": LONG_TEXT, "tags": LONG_LIST, "numbers": LONG_NUMBERS, "ids": LONG_UUIDS, "picture": LONG_BYTES,
     "document": LONG_DOCUMENT, "version": INTEGER},
    2,
)  # fmt: skip
"""Large values that the write-ahead log does not have if a change leaves them as they are."""
LARGE = LONG_TEXT, LONG_LIST, LONG_NUMBERS, LONG_UUIDS, LONG_BYTES, LONG_DOCUMENT
VARIANTS = (
    *((shape, (PLAIN, WITHIN)[number % 2]) for number, shape in enumerate(SHAPES)),
    (TOASTED, FLAT),
    (SHAPES[1], FLAT),
    *((Shape(mode, {"id": SMALL_KEY}, {"day": _DAY, **kinds}), mode) for mode, kinds in MOMENTS.items()),
    (TOASTED, PLAIN),
    (TOASTED, WITHIN),
    (SHAPES[2], FLAT),
    *((shape, (WITHIN, PLAIN)[number % 2]) for number, shape in enumerate(SHAPES)),
)
"""Shapes of tables, each with the connector that captures a table."""


@dataclass(frozen=True)
class Table:
    """A table of the database, its topic, and the Delta table of the topic's name."""

    name: str
    shape: Shape
    connector: str = field(default=PLAIN)
    """Name of the connector that captures the table."""

    @property
    def envelope(self) -> str:
        """Return the value of `ingest.envelope`."""
        return "flattened" if self.connector == FLAT else "debezium"

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of the table's connector."""
        converters = {
            f"{part}.converter{more}": value
            for part in ("key", "value")
            for more, value in (
                ("", "org.apache.kafka.connect.json.JsonConverter"),
                (".schemas.enable", str(self.connector == WITHIN).lower()),
            )
        }
        mode = {"time.precision.mode": self.connector} if self.connector in MOMENTS else {}
        return {**DEBEZIUM, **converters, **mode, **(FLATTENED if self.connector == FLAT else {})}

    @property
    def has_history(self) -> bool:
        """Return whether the latest state follows from each key's last record alone, which has Debezium's envelope."""
        return self.connector != FLAT and self.shape is not TOASTED

    @property
    def times(self) -> str:
        """Return the value of `ingest.times`."""
        return ", ".join(f"{name}={kind.unit}" for name, kind in self.columns.items() if kind.unit)

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
        columns = ", ".join(f"`{name}`: {kind.ddl}" for name, kind in self.columns.items())
        if self.connector == FLAT:
            return f"{columns}, __deleted STRING"
        row = f"STRUCT<{columns}>"
        return self._document({"before": row, "after": row, "op": "STRING", "ts_ms": "BIGINT"})

    @property
    def key_ddl(self) -> str:
        """Return the schema of the records' keys, for the job."""
        return self._document({f"`{name}`": kind.ddl for name, kind in self.shape.keys.items()})

    def _document(self, fields: Mapping[str, str]) -> str:
        if self.connector == WITHIN:
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
    """Return tables of all variants in turn."""
    variants = [VARIANTS[number % len(VARIANTS)] for number in range(count)]
    return [Table(f"{shape.name}_{number:02d}", shape, connector) for number, (shape, connector) in enumerate(variants)]
