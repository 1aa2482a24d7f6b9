"""Tables of all kinds: both lanes leave the same rows in them, or both refuse; and every reader finds these rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, seed, settings
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from tests.delta.made_tables import MadeTable, made_tables
from tests.delta.table_readers import Rows, by_deltalake, by_duckdb, by_spark
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.errors import TieredStreamError

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
                checkpoint=str(self.folder / "checkpoint"), lane=lane,
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
