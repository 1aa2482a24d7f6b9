"""Dead letters into their tables, once, whatever crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from tests.delta.test_typed_tables import Typed
from tests.delta.typed_archive import typed_options, write_topic
from tests.stack.rows import Record
from tiered_stream.delta import redrive as module
from tiered_stream.delta.redrive import Chosen, RedriveReport, redrive
from tiered_stream.errors import TableError

pytestmark = pytest.mark.slow

EVERYTHING = Chosen()
JSON = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.dayColumn": "day"}


class _CrashError(Exception):
    pass


class Redriven(Typed):
    """Ten letters of a topic are set aside by a constraint that is then dropped, and one that stays garbage."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        records = [Record(None, b'{"id": %d}' % number) for number in range(20)]
        write_topic(self.bucket, "orders", [[*records, Record(None, b"garbage")]])
        columns = "key BINARY, id BIGINT, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
        columns += ", timestampType INT, day DATE"
        spark.sql(f"CREATE TABLE delta.`{self.table}` ({columns}) USING delta PARTITIONED BY (day)")
        spark.sql(f"ALTER TABLE delta.`{self.table}` ADD CONSTRAINT small CHECK (id < 10)")
        self.run(**JSON, **self.aside)
        spark.sql(f"ALTER TABLE delta.`{self.table}` DROP CONSTRAINT small")

    def redrive(
        self, chosen: Chosen = EVERYTHING, *, dry_run: bool = False, pattern: str | None = None
    ) -> RedriveReport:
        settings = typed_options(self.bucket, "orders", {**JSON, **self.aside})
        if pattern is not None:
            del settings["subscribe"]
            settings["subscribePattern"] = pattern
        return redrive(self.spark, settings, str(self.table), chosen, dry_run=dry_run)

    @property
    def ids(self) -> list[int]:
        return sorted(row.id for row in self.read().collect())

    @property
    def letters(self) -> list[int]:
        return sorted(row.offset for row in self.read(self.dead).collect())


def test_what_decodes_by_now_is_brought_in_once_and_the_rest_is_told(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    assert (table.ids, table.letters) == (list(range(10)), list(range(10, 21)))
    left = {("orders", "no JSON: Expecting value at character 0"): 1}

    dry = table.redrive(dry_run=True)
    assert (dry.mended, dry.left, table.letters) == ({str(table.table): 10}, left, list(range(10, 21)))
    assert table.redrive(Chosen(topics=["others"])).left == {}
    assert table.redrive(Chosen(to_ms=1_700_000_000_000)).mended == {}
    report = table.redrive(Chosen(["orders"], 1_700_000_000_000, 1_700_000_000_001))
    assert (report.mended, report.left) == ({str(table.table): 10}, left)
    assert (table.ids, table.letters) == (list(range(20)), [20])
    assert table.read().where("day IS NULL").isEmpty()

    assert table.redrive().mended == {}
    assert (table.ids, table.letters) == (list(range(20)), [20])


@pytest.mark.parametrize("statement", ["append", "DELETE"])
def test_a_crash_between_two_commits_repeats_nothing_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    table = Redriven(spark, tmp_path)

    def crash(*_: Any) -> None:
        raise _CrashError

    with monkeypatch.context() as patch, pytest.raises(_CrashError):
        patch.setattr(module, "table_location", crash) if statement == "append" else patch.setattr(
            module._Redrive, "_delete", crash
        )
        table.redrive()
    assert table.ids == list(range(10 if statement == "append" else 20))
    assert table.letters == list(range(10, 21))

    table.redrive()
    assert (table.ids, table.letters) == (list(range(20)), [20])


def test_letters_of_other_jobs_stay_where_they_are(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    others = table.read(table.dead).where("offset = 10").withColumn("topic", sql.lit("others"))
    others.unionAll(others.withColumn("redrive", sql.lit(1).cast("bigint"))).write.format("delta").mode("append").save(
        str(table.dead)
    )

    assert table.redrive().mended == {str(table.table): 10}
    assert (table.ids, table.letters) == (list(range(20)), [10, 10, 20])


def test_a_topic_that_somebody_else_wrote_is_no_part_of_a_statement(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    foreign = table.read(table.dead).where("offset = 10").withColumn("topic", sql.lit("x' OR '1' = '1"))
    foreign.write.format("delta").mode("append").save(str(table.dead))

    assert table.redrive(pattern=".").mended == {str(table.table): 11}
    assert (table.ids, table.letters) == (sorted([*range(20), 10]), [20])


def test_a_table_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    settings = {
        **JSON,
        "subscribe": "orders",
        "ingest.onDecodeError": "deadLetter",
        "ingest.deadLetterTable": str(tmp_path / "no"),
    }
    with pytest.raises(TableError, match="for dead letters is not there"):
        redrive(spark, settings, str(tmp_path / "table"), EVERYTHING)
