"""Tables of all kinds: both lanes leave the same rows in them, or both refuse; and every reader finds these rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, seed, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from tests.delta.table_readers import Rows, by_deltalake, by_duckdb, by_spark
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.errors import TieredStreamError

ODD_NAMES = ["id", "Größe", "a.b", "x-y", "it's", "tick`", "a%20b", "#", "SELECT", "日", "C", "c2"]
"""In tables and structs; some need quotes, some need an escape in a URI, two look like patterns."""
REFUSED_NAMES = ["a b", "a,b", "a=b"]
_FIT = ["", " ", "a", "é", "日"]
_LONG = ["ab", "abc", "abc  ", "a     ", "  abc", "ééé", "日本語文字", "a" * 40, "😀😀😀"]
_DAYS = ["2024-02-29", "1970-01-01", "1582-10-04", "1600-01-01", "9999-12-31"]
_MOMENTS = [f"{day}T12:34:56.789Z" for day in _DAYS]
_DEEPEST = 3


@dataclass(frozen=True)
class Kind:
    """A column's type: as the table has it (`ddl`), as the value's schema has it (`given`), and its values in JSON."""

    ddl: str
    given: str
    values: st.SearchStrategy[Any]
    number: bool = False
    """Whether it can be compared with a number."""


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    not_null: bool = False
    default: str | None = None
    given_name: str | None = None
    """In the value's schema; None: values do not have it."""


@dataclass(frozen=True)
class MadeTable:
    """A table, as it is made by SQL, and what is landed in it."""

    columns: tuple[Column, ...]
    generated: tuple[str, ...]
    """Definitions of generated columns."""
    checks: tuple[str, ...]
    values: tuple[str, ...]
    """JSON documents."""
    sets_aside: bool
    """Whether what the table does not take becomes a dead letter; else the query fails."""

    @property
    def ddl(self) -> str:
        """The columns, as `CREATE TABLE` has them."""
        return ", ".join([*map(_definition, self.columns), *self.generated])

    @property
    def value_schema(self) -> str:
        return ", ".join(f"{quoted(each.given_name)} {each.kind.given}" for each in self.columns if each.given_name)

    @property
    def has_defaults(self) -> bool:
        return any(each.default is not None for each in self.columns)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _definition(column: Column) -> str:
    not_null = " NOT NULL" * column.not_null
    default = f" DEFAULT {column.default}" if column.default is not None else ""
    return f"{quoted(column.name)} {column.kind.ddl}{not_null}{default}"


def _one_in(draw: st.DrawFn, chances: int) -> bool:
    return draw(st.integers(1, chances)) == chances


def _mostly(good: Sequence[Any], bad: Sequence[Any]) -> st.SearchStrategy[Any]:
    """One of 15 is bad, and one of 15 null."""
    return st.integers(1, 15).flatmap(
        lambda at: st.sampled_from(bad or good) if at == 14 else st.none() if at == 15 else st.sampled_from(good)
    )


def _leaf(ddl: str, good: Sequence[Any], bad: Sequence[Any] = (), *, number: bool = False) -> Kind:
    return Kind(ddl, ddl, _mostly(good, bad), number)


_LEAVES = [
    _leaf("INT", [0, 1, 7, -1, 2**31 - 1], [2**31, "x"], number=True),
    _leaf("BIGINT", [0, 5, 7, -(2**63)], [2**63], number=True),
    _leaf("STRING", [*_FIT, *_LONG, 7]),
    _leaf("DOUBLE", [0.0, -0.0, 1.5, "NaN", -1e300], ["x"], number=True),
    _leaf("DATE", _DAYS, ["2024-02-30"]),
    _leaf("TIMESTAMP", _MOMENTS, ["2024-02-29"]),
    _leaf("BOOLEAN", [True, False], [2]),
    _leaf("DECIMAL(9,2)", [0, "1.25", -7], [99999999999], number=True),
]


@st.composite
def _texts_of_a_length(draw: st.DrawFn) -> Kind:
    length = draw(st.integers(1, 4))
    return Kind(f"{draw(st.sampled_from(['VARCHAR', 'CHAR']))}({length})", "STRING", _mostly(_FIT, _LONG))


@st.composite
def _kinds(draw: st.DrawFn, depth: int = 0, *, in_list: bool = False) -> Kind:
    """`in_list`: within an array or a map, where Delta allows no NOT NULL."""
    choice = draw(st.integers(0, 11 if depth < _DEEPEST else 6))
    if choice <= 4:
        return draw(st.sampled_from(_LEAVES))
    if choice <= 6:
        return draw(_texts_of_a_length())
    if choice <= 9:
        return draw(_structs(depth, in_list))
    return (_arrays if choice == 10 else _maps)(draw(_kinds(depth + 1, in_list=True)))


@st.composite
def _structs(draw: st.DrawFn, depth: int, in_list: bool) -> Kind:
    names = draw(st.lists(_names(), min_size=1, max_size=3, unique_by=str.lower))
    fields = [(name, draw(_kinds(depth + 1, in_list=in_list)), _one_in(draw, 80 if in_list else 3)) for name in names]
    ddl = ", ".join(f"{quoted(name)}: {kind.ddl}{' NOT NULL' * not_null}" for name, kind, not_null in fields)
    given = [(name, kind) for name, kind, _ in fields if not _one_in(draw, 10)] or [fields[0][:2]]
    return Kind(
        f"STRUCT<{ddl}>", f"STRUCT<{', '.join(f'{quoted(n)}: {k.given}' for n, k in given)}>",
        _often_null(_objects({name: kind.values for name, kind in given})),
    )  # fmt: skip


def _objects(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Most have all fields."""
    whole = st.fixed_dictionaries(fields)
    return st.one_of(whole, whole, whole, st.fixed_dictionaries({}, optional=fields))


def _often_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, values, st.none())


def _arrays(kind: Kind) -> Kind:
    return Kind(f"ARRAY<{kind.ddl}>", f"ARRAY<{kind.given}>", _often_null(st.lists(kind.values, max_size=3)))


def _maps(kind: Kind) -> Kind:
    values = st.dictionaries(st.sampled_from(["a", "b", "abcdef"]), kind.values, max_size=2)
    return Kind(f"MAP<STRING, {kind.ddl}>", f"MAP<STRING, {kind.given}>", _often_null(values))


@st.composite
def _names(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(REFUSED_NAMES if _one_in(draw, 80) else ODD_NAMES))


@st.composite
def _columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(_kinds())
    default = None
    if _one_in(draw, 20):
        default = {"INT": "7", "STRING": "'none'"}.get(kind.ddl, "NULL")
    given_name = None if _one_in(draw, 12) else name.swapcase() if _one_in(draw, 25) else name
    return Column(name, kind, _one_in(draw, 5), default, given_name)


@st.composite
def made_tables(draw: st.DrawFn) -> MadeTable:
    """Of three to six columns. Delta may refuse to make it."""
    names = draw(st.lists(_names(), min_size=3, max_size=6, unique_by=str.lower))
    columns = tuple(draw(_columns(name)) for name in names)
    if not any(each.given_name for each in columns):
        columns = (*columns, Column("given", _LEAVES[0], given_name="given"))
    numbers = [each for each in columns if each.kind.number]
    generated = [
        f"made_{at} {each.kind.ddl} GENERATED ALWAYS AS ({quoted(each.name)})"
        for at, each in enumerate(numbers)
        if _one_in(draw, 8)
    ]
    checks = [_check(draw, each) for each in numbers if _one_in(draw, 4)]
    given = {each.given_name: each.kind.values for each in columns if each.given_name}
    values = draw(st.lists(_objects(given), min_size=4, max_size=10))
    return MadeTable(
        columns, tuple(generated), tuple(checks), tuple(map(json.dumps, values)), sets_aside=not _one_in(draw, 4)
    )


def _check(draw: st.DrawFn, column: Column) -> str:
    name = quoted(column.name)
    return draw(st.sampled_from([f"{name} >= 0", f"{name} IS NULL OR {name} < 6", f"abs({name}) < 9"]))


QUICK, MANY = 5, 60
PARTS = 4
"""Tables of a run; one takes some seconds."""


@dataclass
class Lane:
    """One lane's table, and what became of its query."""

    spark: SparkSession
    folder: Path
    made: MadeTable
    chosen: str = ""
    refused: Exception | None = None

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def make(self) -> None:
        """Raises PySparkException: Delta refuses the table."""
        defaults = " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')" * self.made.has_defaults
        self.spark.sql(f"CREATE TABLE delta.`{self.table}` ({self.made.ddl}) USING delta{defaults}")
        for number, check in enumerate(self.made.checks):
            self.spark.sql(f"ALTER TABLE delta.`{self.table}` ADD CONSTRAINT c{number} CHECK ({check})")

    def land(self, bucket: Path, lane: str) -> None:
        options = {
            "ingest.value.format": "json",
            "ingest.value.schema": self.made.value_schema,
            "ingest.kafkaColumns": "none",
        }
        if self.made.sets_aside:
            options |= {"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(self.folder / "dead")}
        try:
            landing = plan_query(
                self.spark, options=topic_options(bucket, "orders", options), table=str(self.table),
                run=QueryRun(str(self.folder / "checkpoint")), lane=lane,
            )  # fmt: skip
            self.chosen = landing.lane.value
            landing.start().awaitTermination()
        except (TieredStreamError, PySparkException) as error:
            self.refused = error

    def schema(self) -> StructType:
        return self.spark.read.format("delta").load(str(self.table)).schema

    def letters(self) -> list[tuple[int, str, str]]:
        if not (self.folder / "dead" / "_delta_log").exists():
            return []
        return sorted(
            (row["offset"], row["failed"], row["reason"]) for row in by_spark(self.spark, self.folder / "dead")
        )


def comparable(rows: Rows, schema: StructType, text: Callable[[str], str] = str) -> list[str]:
    """As texts, in order. Readers leave out columns that no file has."""
    return sorted(repr(_value(row, schema, text)) for row in rows)


def _value(value: Any, kind: DataType, text: Callable[[str], str]) -> Any:
    if value is None:
        return None
    match kind:
        case StructType():
            found = {name.lower(): each for name, each in value.items()}
            return [_value(found.get(field.name.lower()), field.dataType, text) for field in kind]
        case ArrayType():
            return [_value(each, kind.elementType, text) for each in value]
        case MapType():
            pairs = value.items() if isinstance(value, dict) else value
            return sorted((text(key), _value(each, kind.valueType, text)) for key, each in pairs)
        case StringType():
            return text(value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.replace(tzinfo=UTC).isoformat()
    return value


def unpadded(text: str) -> str:
    """Spark pads CHAR(n) when it reads."""
    return text.rstrip(" ")


def check(spark: SparkSession, folder: Path, made: MadeTable) -> None:
    note(f"CREATE TABLE ({made.ddl}), CHECK {made.checks}; values {made.value_schema}")
    direct, by_rows = Lane(spark, folder / "auto", made), Lane(spark, folder / "spark", made)
    try:
        direct.make()
        by_rows.make()
    except PySparkException:
        event("Delta refuses the table")
        return
    write_topic(folder / "bucket", "orders", [[Record(None, value.encode()) for value in made.values]])
    direct.land(folder / "bucket", "auto")
    by_rows.land(folder / "bucket", "spark")
    event(f"{direct.chosen or 'no'} lane, {'refused' if direct.refused else 'landed'}")
    note(f"{direct.chosen} lane: {direct.refused!s:.500}\nSpark lane: {by_rows.refused!s:.500}")
    assert (direct.refused is None) == (by_rows.refused is None)
    schema = direct.schema()
    found = by_spark(spark, direct.table)
    assert comparable(found, schema) == comparable(by_spark(spark, by_rows.table), schema)
    if direct.refused is None:
        assert direct.letters() == by_rows.letters()
    for read in (by_deltalake, by_duckdb):
        rows = read(direct.table)
        assert comparable(rows, schema) == comparable(read(by_rows.table), schema)
        assert comparable(rows, schema, unpadded) == comparable(found, schema, unpadded)
    if found:
        # Delta checks every row that it writes again.
        name = schema.fields[0].name.replace("`", "``")
        spark.sql(f"UPDATE delta.`{direct.table}` SET `{name}` = `{name}`")


def quickly(examples: int) -> settings:
    """The same tables at each run, and no search for a smaller one: each takes seconds."""
    return settings(
        max_examples=examples, derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@quickly(QUICK)
@given(made=made_tables())
def test_both_lanes_leave_the_same_rows_or_refuse(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, made: MadeTable
) -> None:
    check(spark, tmp_path_factory.mktemp("table"), made)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_both_lanes_leave_the_same_rows_in_many_tables_or_refuse(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, part: int
) -> None:
    """In parts, because a test that takes ten minutes counts as one that hangs."""

    @seed(part)
    @settings(quickly(MANY // PARTS), derandomize=False, database=None)
    @given(made=made_tables())
    def check_tables(made: MadeTable) -> None:
        check(spark, tmp_path_factory.mktemp("table"), made)

    check_tables()
