"""Redrives into tables of the latest state: a dead letter never replaces a newer row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.delta.test_latest_state import Latest
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options
from tiered_stream.delta.commit import key_order
from tiered_stream.delta.redrive.dead_letter_marks import DeadLetterMarks
from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter, RedriveReport, redrive
from tiered_stream.delta.redrive.redriven_table import SOURCE, KeyedRows, RedrivenTable
from tiered_stream.delta.write.latest_rows import DELETES, PARTITION, PLACEHOLDERS, POSITION
from tiered_stream.errors import ConfigurationError

KAFKA = {"topic": "topic", "partition": "p", "offset": "o"}
JSON = {
    "ingest.key.format": "string", "ingest.value.format": "json", "ingest.keys": "key",
    "ingest.value.schema": "n INT", "ingest.kafkaColumns": "partition as p, offset as o",
}  # fmt: skip


def rows(order_by: str | None = None, **kafka: str) -> KeyedRows:
    return KeyedRows(("id",), order_by, kafka or KAFKA, None)


def test_a_row_is_replaced_only_by_a_record_that_is_not_older() -> None:
    assert rows("at").merge_sql("t", ["id"], {}, {}).count("(target.`at` IS NULL OR source.`at` >= target.`at`)") == 2
    text = rows().merge_sql("t", ["id"], {}, {})
    assert text.count("(target.`o` IS NULL OR source.`o` >= target.`o`)") == 2
    assert "WHEN target.`topic` <> source.`topic` OR target.`p` <> source.`p` THEN CAST(raise_error(" in text


def test_a_table_that_does_not_show_which_record_is_newer_is_refused() -> None:
    rows().check_order("t", shared=True)
    rows("at", partition="partition").check_order("t", shared=True)
    rows(partition="p", offset="o").check_order("t", shared=False)
    for kafka, shared, lacking in (
        ({"partition": "p", "offset": "o"}, True, "Kafka's topic "),
        ({"topic": "topic"}, True, "Kafka's partition and offset "),
        ({"partition": "p"}, False, "Kafka's offset "),
    ):
        with pytest.raises(ConfigurationError, match=f"{lacking}.*Replay"):
            rows(None, **kafka).check_order("t", shared=shared)


@pytest.mark.parametrize("order_by", [None, "v"])
def test_a_deleted_row_whose_letters_insert_it_again_is_a_new_row(
    spark: SparkSession, tmp_path: Path, order_by: str | None
) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, v BIGINT, note STRING) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1, 5, 'kept'), (2, 5, 'kept'), (3, 5, 'kept')")
    letters = ((1, 6, True), (1, 7, False), (2, 4, True), (2, 7, False), (3, 7, False))
    columns = f"id BIGINT, v BIGINT, {PARTITION} STRING, {POSITION} BIGINT, {DELETES} BOOLEAN"
    staged = spark.createDataFrame([(key, at, "t/0", at, deletes) for key, at, deletes in letters], columns)
    keyed = KeyedRows(("id",), order_by, {"offset": "v"}, None, ("note",))
    keyed.last_rows(staged, StructType(staged.schema.fields[:2]), {}, ()).createOrReplaceTempView(SOURCE)
    spark.sql(keyed.merge_sql(table, ["id", "v"], {"note": "NULL"}, {}))
    assert sorted(map(tuple, spark.table(table).collect())) == [(1, 7, None), (2, 7, "kept"), (3, 7, "kept")]


@pytest.mark.parametrize("order_by", [None, "v"])
def test_a_letter_with_a_placeholder_keeps_the_last_value_of_the_row_and_of_other_letters(
    spark: SparkSession, tmp_path: Path, order_by: str | None
) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, v BIGINT, doc STRING) USING delta")
    spark.sql(f"INSERT INTO {table} SELECT id, 5, 'row' FROM range(1, 6)")
    letters = ((1, 7, False, None), (2, 6, False, "letter"), (2, 7, False, None), (3, 4, False, "letter"),
               (3, 7, False, None), (4, 6, True, None), (4, 7, False, None), (5, 4, True, None), (5, 7, False, None),
               (6, 7, False, None))  # fmt: skip
    columns = f"id BIGINT, v BIGINT, doc STRING, {PARTITION} STRING, {POSITION} BIGINT, {DELETES} BOOLEAN"
    staged = spark.createDataFrame(
        [(key, at, doc or "??", "t/0", at, deletes, None if doc else ["doc"]) for key, at, deletes, doc in letters],
        f"{columns}, {PLACEHOLDERS} ARRAY<STRING>",
    )
    keyed = KeyedRows(("id",), order_by, {"offset": "v"}, None, has_placeholders=True)
    written = StructType(staged.schema.fields[:3])
    known_at = keyed.known_at(staged, written)
    keyed.last_rows(staged, written, known_at, ()).createOrReplaceTempView(SOURCE)
    spark.sql(keyed.merge_sql(table, ["id", "v", "doc"], {}, known_at))
    docs = dict(spark.table(table).select("id", "doc").collect())
    assert docs == {1: "row", 2: "letter", 3: "row", 4: None, 5: "row", 6: None}


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
        settings = topic_options(self.bucket, "orders", {"ingest.mode": "upsert", **self.given, **more})
        return redrive(self.spark, settings, str(self.table), DeadLetterFilter())

    @property
    def letters(self) -> list[int]:
        return sorted(row.offset for row in self.spark.read.format("delta").load(str(self.dead)).collect())


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
@pytest.mark.parametrize("moved", ["b", "d"])
def test_a_letter_of_a_key_in_two_partitions_stays_and_does_not_hold_up_others(
    spark: SparkSession, tmp_path: Path, moved: str
) -> None:
    """Key b has another letter, and d a row of an older record, both in the partition 0."""
    table = Redriven(spark, tmp_path)
    spark.sql(f"UPDATE delta.`{table.dead}` SET partition = 1, key = CAST('{moved}' AS BINARY) WHERE offset = 4")
    report = table.redrive()
    kept = [2, 4] if moved == "b" else [4]
    ((topic, reason),) = report.left
    assert (topic, report.left[topic, reason], table.letters) == ("orders", len(kept), kept)
    assert "orders/0 and orders/1" in reason
    assert "set ingest.orderBy" in reason
    brought = [] if moved == "b" else [("b", 20, 2)]
    assert table.rows("key", "n", "o") == [("a", 3, 3), *brought, ("d", 5, 5)]
    spark.sql(f"DELETE FROM delta.`{table.table}` WHERE key = 'd'")
    spark.sql(f"DELETE FROM delta.`{table.dead}` WHERE offset = 2")
    assert table.redrive().appended == {str(table.table): 1}
    assert (moved, 30, 4) in table.rows("key", "n", "o")


@pytest.mark.slow
def test_a_row_of_another_partition_that_comes_before_the_merge_keeps_the_letters(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Redriven(spark, tmp_path)
    merge, rows = RedrivenTable.merge, iter(["('c', 7, 1, 0, NULL)"])

    def merge_late(self: RedrivenTable, *given: Any) -> bool:
        for row in rows:
            spark.sql(f"INSERT INTO delta.`{table.table}` VALUES {row}")
        return merge(self, *given)

    monkeypatch.setattr(RedrivenTable, "merge", merge_late)
    assert list(table.redrive().left.values()) == [1]
    assert table.letters == [4]
    assert table.rows("key", "n", "o") == [("a", 3, 3), ("b", 20, 2), ("c", 7, 0), ("d", 5, 5)]


@pytest.mark.slow
def test_a_table_without_an_order_keeps_its_letters(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path, **{"ingest.kafkaColumns": "partition as p"})
    with pytest.raises(ConfigurationError, match="Kafka's offset"):
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


def test_only_columns_of_the_tables_type_get_its_not_null(spark: SparkSession) -> None:
    """Rows are given the table's types by position, so another order of fields would exchange their values."""
    table = StructType.fromDDL("id BIGINT, place STRUCT<a: INT NOT NULL, b: INT>, spot STRUCT<x: INT NOT NULL>")
    structs = """from_json('{"b":1,"a":2}', 'b INT, a INT') AS place, from_json('{"x":3}', 'x INT') AS spot"""
    made = key_order._with_not_null(spark.sql(f"SELECT 1L AS id, {structs}"), table)
    (row,) = made.collect()
    assert row.asDict(recursive=True) == {"id": 1, "place": {"b": 1, "a": 2}, "spot": {"x": 3}}
    assert not made.schema["spot"].dataType["x"].nullable
