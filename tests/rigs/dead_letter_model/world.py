"""Topics and tables of one history in a folder: its records, manual changes of tables, and the place of each offset."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.rigs.dead_letter_model.history import (
    COLUMNS,
    DEAD_LETTERS,
    AddCheck,
    AllowNull,
    Break,
    Change,
    DropChecks,
    Produce,
    Repair,
    Setup,
)
from tests.rigs.dead_letter_model.shapes import TEXT
from tests.rigs.dead_letter_model.without_spark import Session
from tests.rigs.stack.rows import Record
from tests.tier.topics import write_topic

FIRST_MS, STEP_MS = 1_700_000_000_000, 1000
"""Timestamp of offset 0 in each partition, and the distance to the next offset's, in ms."""
_CHECK = "delta.constraints."
_ALWAYS = "always"

Offset = tuple[str, int, int]
"""Topic, partition and offset."""


def time_of(offset: int) -> int:
    """Return the record's timestamp, in ms since the epoch."""
    return FIRST_MS + STEP_MS * offset


@dataclass
class World:
    """State of a history. `produced` has the values by offset."""

    spark: SparkSession | Session
    folder: Path
    setup: Setup
    produced: dict[Offset, bytes | None] = field(default_factory=dict)

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def path(self, table: int | str) -> Path:
        """Return a table's folder, by number or name. -1 is the dead-letter table."""
        if isinstance(table, int):
            table = DEAD_LETTERS if table < 0 else self.setup.tables[table]
        return self.folder / "lake" / table

    @property
    def target(self) -> str:
        """`ingest.table`."""
        by_topic = self.setup.table_of(self.setup.topics[0]) == self.setup.topics[0]
        return str(self.path("{topic}" if by_topic else "main"))

    @property
    def route(self) -> dict[str, str]:
        if "routed" not in self.setup.tables:
            return {}
        return {"ingest.route": f"{self.setup.topics[0]}={self.path('routed')}"}

    @property
    def end(self) -> int:
        """Next offset of each partition."""
        return max((offset for *_, offset in self.produced), default=-1) + 1

    def make_tables(self) -> None:
        """Make the tables, unless the query is to make them."""
        not_null = self.setup.not_null
        if not_null is None:
            return
        shape, limit = self.setup.shape, self.setup.text_limit
        fields = [
            ("key", "binary"), *((name, "long") for name in ("id", *map(shape.in_table, COLUMNS))), ("topic", "string"),
            ("partition", "integer"), ("offset", "long"), ("timestamp", "timestamp"), ("timestampType", "integer"),
            *[("day", "date")] * self.setup.day_column,
        ]  # fmt: skip
        required = set(map(shape.in_table, not_null))
        given = [Field(name, PrimitiveType(kind), nullable=name not in required) for name, kind in fields]
        if shape.renames:
            metadata = {} if limit is None else {"__CHAR_VARCHAR_TYPE_STRING": f"varchar({limit})"}
            given.append(Field(TEXT, PrimitiveType("string"), metadata=metadata))
        columns = Schema(given)
        for number in range(len(self.setup.tables)):
            DeltaTable.create(self.path(number), columns, partition_by=["day"] if self.setup.day_column else None)

    def produce(self, step: Produce) -> None:
        """Write the records to the tier."""
        first = self.end
        for topic in self.setup.topics:
            partitions = []
            for partition in range(self.setup.partitions):
                random = Random(f"{step.seed} {topic} {partition}")
                offsets = range(first, first + step.records)
                keys = [(topic, partition, offset) for offset in offsets]
                values = {key: b"spoiled %d" % key[2] if step.spoiled else _value(random, key) for key in keys}
                self.produced |= values
                partitions.append([Record(b"k", value, (), time_of(key[2])) for key, value in values.items()])
            write_topic(self.bucket, topic, partitions, first)

    # Changes by hand

    def change(self, change: Change) -> str | None:
        """Change a table; return the reason if that is impossible."""
        path = self.path(change.table)
        if isinstance(change, Repair):
            return self._repair(path)
        if not (path / "_delta_log").is_dir():
            return "there is no such table"
        match change:
            case AddCheck():
                check = self.setup.shape.in_table(change.check)
                return _add_check(path, f"check_{hash_of(check)}", check)
            case DropChecks():
                self._drop_checks(path)
            case AllowNull() if isinstance(self.spark, Session):
                return "only Spark can do it"
            case AllowNull():
                for column in (each.name for each in DeltaTable(path).schema().fields if not each.nullable):
                    self._alter(path, f"ALTER COLUMN {column} DROP NOT NULL")
            case Break(how="away"):
                path.rename(_away(path))
                path.write_text("not a table")
            case Break():
                return _add_check(path, _ALWAYS, "offset >= 0")
        return None

    def repair_all(self) -> None:
        """Let every table take every row that decodes."""
        for number in range(-1, len(self.setup.tables)):
            self.change(Repair(number))
            self.change(DropChecks(number))
            self.change(AllowNull(number))

    def _repair(self, path: Path) -> str | None:
        if _away(path).exists():
            path.unlink()
            _away(path).rename(path)
        elif not path.exists():
            return "there is no such table"
        self._drop_checks(path, _ALWAYS)
        return None

    def _drop_checks(self, path: Path, only: str = "") -> None:
        table = DeltaTable(path)
        for name in [each.removeprefix(_CHECK) for each in table.metadata().configuration if _CHECK in each]:
            if name == only or not only:
                table.alter.drop_constraint(name)
                table.update_incremental()

    def _alter(self, path: Path, how: str) -> str | None:
        assert isinstance(self.spark, SparkSession)
        try:
            self.spark.sql(f"ALTER TABLE delta.`{path}` {how}")
        except PySparkException as error:
            return str(error).partition("\n")[0][:150]
        return None

    # Where offsets are

    def has_parked(self) -> bool:
        """Return whether tables are parked."""
        files = {int(file.name): file for file in self.checkpoint.glob("tables/*") if file.name.isdecimal()}
        return bool(files) and bool(json.loads(files[max(files)].read_bytes()).get("parked"))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Read the table's rows: their offsets and `id`."""
        return _rows(self.path(table), ["topic", "partition", "offset", "id"])

    def letters(self) -> list[dict[str, Any]]:
        """Read the dead letters."""
        return _rows(self.path(DEAD_LETTERS), ["topic", "partition", "offset", "value", "reason", "redrive"])

    def faults(self, *, final_schema: tuple[str, ...] | None = None) -> list[str]:
        """Return all faults after all work has ended well: each offset must be once in its table or a dead letter.

        `final_schema`: a redrive with this schema came last, and the tables take any row.
        """
        found: list[str] = []
        rows = self._rows_by_offset(found)
        letters = self._letters_by_offset(found, final_schema)
        for key in self.produced:
            left_out = self._is_left_out(key)
            if rows[key] + letters[key] > 1 or (left_out and rows[key]) or not (left_out or rows[key] + letters[key]):
                found.append(f"{_shown(key)} is {rows[key]} times in its table, {letters[key]} times a dead letter")
        return found

    def _is_left_out(self, key: Offset) -> bool:
        """Return whether the record has no row if it decodes."""
        try:
            return self.setup.shape.leaves_out(id_of(self.produced[key]))
        except ValueError:
            return False

    def _rows_by_offset(self, found: list[str]) -> Counter[Offset]:
        rows: Counter[Offset] = Counter()
        for table in self.setup.tables:
            for row in self.rows(table):
                key = _key(row)
                rows[key] += 1
                if self.setup.table_of(key[0]) != table:
                    found.append(f"{_shown(key)} is in the table {table}")
                if row["id"] != id_of(self.produced[key]):
                    found.append(f"{_shown(key)} has the id {row['id']}")
        return rows

    def _letters_by_offset(self, found: list[str], final_schema: tuple[str, ...] | None) -> Counter[Offset]:
        letters: Counter[Offset] = Counter()
        for letter in self.letters():
            key = _key(letter)
            letters[key] += 1
            if letter["value"] != self.produced[key]:
                found.append(f"{_shown(key)} is a letter with the value {letter['value']}")
            if letter["redrive"] is not None:
                found.append(f"{_shown(key)} is a letter that the redrive {letter['redrive']} has marked")
            if final_schema is not None and decodes(self.produced[key], final_schema):
                found.append(f"{_shown(key)} is a letter still ({letter['reason']}): {self.produced[key]!r}")
        return letters

    def doubled(self) -> list[str]:
        """Return offsets that are more than once in their table, which is wrong at any time."""
        rows = Counter(_key(row) for table in self.setup.tables for row in self.rows(table))
        return [f"{_shown(key)} is {count} times in its table" for key, count in rows.items() if count > 1]


def decodes(value: bytes | None, schema: tuple[str, ...]) -> bool:
    """Return whether the value is a row by the schema."""
    if value is None:
        return True
    try:
        document = json.loads(value)
    except ValueError:
        return False
    return all(document.get(name) is None or isinstance(document[name], int) for name in schema)


def id_of(value: bytes | None) -> int | None:
    """Return the field `id` of a JSON value."""
    found: int | None = None if value is None else json.loads(value)["id"]
    return found


def hash_of(text: str) -> int:
    """Return a hash that is the same in each process."""
    return zlib.crc32(text.encode()) % 1_000_003


def _value(random: Random, key: Offset) -> bytes | None:
    match random.choices(("document", "garbage", "none"), (17, 2, 1))[0]:
        case "garbage":
            return b"garbage %d" % key[2]
        case "none":
            return None
    document: dict[str, object] = {"id": hash_of(f"{key}")}
    for name in COLUMNS:
        kind = random.choices(("number", "wrong", "missing"), (8, 2, 1))[0]
        if kind != "missing":
            document[name] = random.randrange(100) if kind == "number" else "wrong"
    return json.dumps(document).encode()


def _add_check(path: Path, name: str, check: str) -> str | None:
    """Add a check by deltalake, which is faster than Spark; return the reason if that is impossible."""
    try:
        DeltaTable(path).alter.add_constraint({name: check})
    except DeltaError as error:
        return str(error).partition("\n")[0][:150]
    return None


def _away(path: Path) -> Path:
    return path.with_name(f"{path.name}.away")


def _rows(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    """Read columns of a table, also if its folder was moved away; no rows if there is no table."""
    path = _away(path) if _away(path).exists() else path
    try:
        found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table(columns=columns).to_pylist()
    except TableNotFoundError:
        return []
    return found


def _key(row: dict[str, Any]) -> Offset:
    return row["topic"], row["partition"], row["offset"]


def _shown(key: Offset) -> str:
    return f"{key[0]}-{key[1]} offset {key[2]}"
