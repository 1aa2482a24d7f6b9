"""Redrives into tables of the latest state: a dead letter never replaces a newer row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta.test_latest_state import Latest
from tests.delta.typed_archive import typed_options
from tests.stack.rows import Record
from tiered_stream.delta.redrive.dead_letter_marks import DeadLetterMarks
from tiered_stream.delta.redrive.keyed_rows import KeyedRows
from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter, RedriveReport, redrive
from tiered_stream.delta.redrive.redriven_table import RedrivenTable
from tiered_stream.errors import ConfigurationError, TableError

KAFKA = {"topic": "topic", "partition": "p", "offset": "o"}
JSON = {
    "ingest.key.format": "string", "ingest.value.format": "json", "ingest.keys": "key",
    "ingest.value.schema": "n INT", "ingest.kafkaColumns": "partition as p, offset as o",
}  # fmt: skip


def rows(order_by: str | None = None, **kafka: str) -> KeyedRows:
    return KeyedRows(("id", "a b"), ("id",), order_by, kafka or KAFKA, None)


def test_a_row_is_replaced_only_by_a_record_that_is_not_older() -> None:
    assert rows("at").merge_sql("t").count("(target.`at` IS NULL OR (source.`at` >= target.`at`))") == 2
    same = "source.`topic` = target.`topic` AND source.`p` = target.`p` AND source.`o` >= target.`o`"
    assert rows().merge_sql("t").count(f"(target.`o` IS NULL OR ({same}))") == 2


def test_a_table_that_does_not_show_which_record_is_newer_is_refused() -> None:
    rows().check_order("t", shared=True)
    rows("at", partition="partition").check_order("t", shared=True)
    rows(partition="p", offset="o").check_order("t", shared=False)
    for kafka, shared, lacking in (
        ({"partition": "p", "offset": "o"}, True, "Kafka's topic "),
        ({"topic": "topic"}, True, "Kafka's partition and offset "),
        ({"partition": "p"}, False, "Kafka's offset "),
    ):
        with pytest.raises(ConfigurationError, match=f"{lacking}.*Replay the topic from the time of the oldest letter"):
            rows(None, **kafka).check_order("t", shared=shared)


class Redriven(Latest):
    """Table with the letters 1 (key a), 2 (key b) and 4 (key c), and rows of later records of a and b."""

    def __init__(self, spark: SparkSession, folder: Path, **given: str) -> None:
        super().__init__(spark, folder)
        self.dead = folder / "dead"
        self.given = {**JSON, "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(self.dead), **given}
        spark.sql(f"CREATE TABLE delta.`{self.table}` (key STRING, n INT, p INT, o BIGINT, at TIMESTAMP) USING delta")
        spark.sql(f"ALTER TABLE delta.`{self.table}` ADD CONSTRAINT small CHECK (n < 10)")
        values = ((b"a", 1), (b"a", 10), (b"b", 20), (b"a", 3), (b"c", 30), (b"d", 5))
        self.write(0, *(Record(key, b'{"n": %d}' % n, (), 1000 + at) for at, (key, n) in enumerate(values)))
        self.run(self.given)
        spark.sql(f"ALTER TABLE delta.`{self.table}` DROP CONSTRAINT small")

    def redrive(self, **more: str) -> RedriveReport:
        settings = typed_options(self.bucket, "orders", {"ingest.mode": "upsert", **self.given, **more})
        return redrive(self.spark, settings, str(self.table), DeadLetterFilter())

    @property
    def letters(self) -> list[int]:
        return sorted(row.offset for row in self.spark.read.format("delta").load(str(self.dead)).collect())


@pytest.mark.slow
def test_a_redrive_brings_letters_in_and_leaves_newer_rows_alone(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    assert (table.rows("key", "n", "o"), table.letters) == ([("a", 3, 3), ("d", 5, 5)], [1, 2, 4])
    assert table.redrive().appended == {str(table.table): 3}
    assert table.rows("key", "n", "o") == [("a", 3, 3), ("b", 20, 2), ("c", 30, 4), ("d", 5, 5)]
    assert table.letters == []
    table.write(0, Record(b"b", None, (), 2000), Record(b"c", b'{"n": 1}', (), 2000))
    table.run(table.given)
    assert table.rows("key", "n", "o") == [("a", 3, 3), ("c", 1, 7), ("d", 5, 5)]
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None


@pytest.mark.slow
def test_letters_that_delete_rows_delete_only_older_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    dead = f"delta.`{table.dead}`"
    spark.sql(f"UPDATE {dead} SET value = NULL, offset = CASE WHEN offset = 4 THEN 9 ELSE offset END")
    spark.sql(f"UPDATE {dead} SET key = CAST('d' AS BINARY) WHERE offset = 9")
    table.redrive()
    assert (table.rows("key", "n"), table.letters) == ([("a", 3)], [])


@pytest.mark.slow
def test_a_column_may_order_letters_of_several_partitions(spark: SparkSession, tmp_path: Path) -> None:
    ordered = {"ingest.kafkaColumns": "timestamp as at", "ingest.orderBy": "at"}
    table = Redriven(spark, tmp_path, **ordered)
    spark.sql(f"UPDATE delta.`{table.dead}` SET partition = 1, key = CAST('b' AS BINARY) WHERE offset = 4")
    assert table.redrive().appended == {str(table.table): 3}
    assert table.rows("key", "n") == [("a", 3), ("b", 30), ("d", 5)]


@pytest.mark.slow
def test_a_key_in_two_partitions_has_no_order_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    spark.sql(f"UPDATE delta.`{table.dead}` SET partition = 1, key = CAST('b' AS BINARY) WHERE offset = 4")
    with pytest.raises(TableError, match="partitions orders/0 and orders/1.*set ingest.orderBy"):
        table.redrive()
    assert table.letters == [1, 2, 4]


@pytest.mark.slow
def test_a_table_without_an_order_keeps_its_letters(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path, **{"ingest.kafkaColumns": "partition as p"})
    with pytest.raises(ConfigurationError, match="no column for Kafka's offset"):
        table.redrive()
    assert table.letters == [1, 2, 4]


@pytest.mark.slow
@pytest.mark.parametrize("step", ["merge", "DELETE"])
def test_a_crash_between_two_commits_repeats_nothing_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    table = Redriven(spark, tmp_path)

    def crash(*_: Any) -> None:
        raise RuntimeError("crash")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="crash"):
        patch.setattr(*((RedrivenTable, "merge") if step == "merge" else (DeadLetterMarks, "delete")), crash)
        table.redrive()
    assert table.letters == [1, 2, 4]
    # Whoever deletes the row of b after the commit does not see it come back.
    spark.sql(f"DELETE FROM delta.`{table.table}` WHERE key = 'b'")
    table.redrive()
    brought = [("b", 20)] if step == "merge" else []
    assert (table.rows("key", "n"), table.letters) == ([("a", 3), *brought, ("c", 30), ("d", 5)], [])
