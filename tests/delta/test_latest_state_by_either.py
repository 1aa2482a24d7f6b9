"""What Spark merges in place of deltalake, and that both leave the same table (`ingest.commit`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import orjson
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.delta.test_latest_state import DEBEZIUM, PLAIN, Latest, change, tombstone
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import configured
from tiered_stream.delta.commit import deltalake_merge
from tiered_stream.delta.commit.deltalake_merge import DeltalakeMerge
from tiered_stream.delta.commit.merge import MergedTable
from tiered_stream.delta.commit.transaction import BatchCommit
from tiered_stream.errors import ConfigurationError

pytestmark = pytest.mark.slow

COLUMNS = (
    '`Id` STRING, `a.b` DECIMAL(38, 2), `Ünï"cöl` DATE, `t``y` DOUBLE, source TIMESTAMP, target TIMESTAMP_NTZ, '
    "list ARRAY<INT>, map MAP<STRING, BIGINT>, nested STRUCT<x: INT, Y: STRUCT<z: STRING>>, b BOOLEAN, s SMALLINT"
)


def document(key: str, number: int, **changed: Any) -> Record:
    value = {
        "Id": key, "a.b": f"{number}.25", 'Ünï"cöl': "2020-02-29", "t`y": number / 3, "source": "2021-01-01T00:00:00Z",
        "target": "2021-01-01T00:00:00", "list": [1, None], "map": {"a": 1, "b": None}, "nested": {"x": 1, "Y": None},
        "b": None, "s": number,
    }  # fmt: skip
    return Record(orjson.dumps({"Id": key}), orjson.dumps({**value, **changed}))


def engine(table: Path) -> str:
    info = DeltaTable(table).history(1)[0]
    assert info["operation"] == "MERGE"
    return "deltalake" if "delta-rs" in str(info.get("engineInfo", info.get("clientVersion"))) else "spark"


def test_both_leave_the_same_rows_of_all_types_and_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    given = {
        "ingest.value.format": "json", "ingest.value.schema": COLUMNS, "ingest.key.format": "json",
        "ingest.key.schema": "Id STRING", "ingest.keys": "Id,a.b", "ingest.orderBy": "s",
    }  # fmt: skip
    tables = []
    for commit in ("auto", "spark"):
        latest = Latest(spark, tmp_path / commit)
        latest.write(0, *(document(f"k{number % 5}", number % 7) for number in range(40)), document("early", 1))
        latest.run({**given, "ingest.commit": commit})
        latest.write(0, document("k1", 3, s=1), document("k1", 4, s=9, list=None, nested={"x": None, "Y": {"z": ""}}))
        latest.write(1, document("k0", 99), document("k0", 0, s=100, map=None))
        latest.run({**given, "ingest.commit": commit})
        tables.append(DeltaTable(latest.table).to_pyarrow_table().to_pylist())
        assert engine(latest.table) == ("deltalake" if commit == "auto" else "spark")
    assert len(tables[0]) == 37
    assert sorted(tables[0], key=str) == sorted(tables[1], key=str)


@pytest.mark.parametrize("bound", ["MAX_ROWS_BYTES", "MAX_JOIN_BYTES"])
def test_spark_merges_what_needs_too_much_memory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bound: str
) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, *(change("r", key, "x") for key in range(2000)))
    latest.run(DEBEZIUM)
    assert engine(latest.table) == "deltalake"
    latest.write(0, *(change("u", key, "y", "x") for key in range(2000)))
    monkeypatch.setattr(deltalake_merge, bound, 1000)
    with caplog.at_level(logging.INFO, "tiered_stream"):
        latest.run(DEBEZIUM)
    assert "Spark merges batch 1: " in caplog.text
    assert engine(latest.table) == "spark"
    assert latest.rows("id", "name") == [(key, "y") for key in range(2000)]


def test_a_batch_that_another_driver_has_merged_before_spark_does_is_found_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, change("r", 1, "a"), change("r", 2, "b"))
    monkeypatch.setattr(deltalake_merge, "MAX_ROWS_BYTES", 0)
    commit = DeltalakeMerge.commit

    def commit_after_another(self: DeltalakeMerge, batch: BatchCommit) -> int:
        with monkeypatch.context() as patched:
            patched.setattr(MergedTable, "remove", lambda *_: None)
            commit(self._of.begin(), batch)
        return commit(self, batch)

    monkeypatch.setattr(DeltalakeMerge, "commit", commit_after_another)
    latest.run({**DEBEZIUM, "maxOffsetsPerTrigger": "1"})
    assert [row["operation"] for row in latest.history()].count("MERGE") == 2
    assert latest.rows("id", "name") == [(1, "a"), (2, "b")]


def test_spark_merges_early_days_because_it_would_misread_those_of_deltalake(
    spark: SparkSession, tmp_path: Path
) -> None:
    latest = Latest(spark, tmp_path)
    given = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT, day DATE", "ingest.keys": "id",
             "ingest.kafkaColumns": "none"}  # fmt: skip
    for number, (day, merged_by) in enumerate((("2020-01-01", "deltalake"), ("1500-01-01", "spark"), (None, "spark"))):
        latest.write(0, Record(b"", orjson.dumps({"id": number, "day": day})))
        latest.run(given)
        assert engine(latest.table) == merged_by
    rows = spark.read.format("delta").load(str(latest.table)).orderBy("id").selectExpr("CAST(day AS STRING)").collect()
    assert [row[0] for row in rows] == ["2020-01-01", "1500-01-01", None]


def test_a_table_that_gets_deletion_vectors_while_the_query_runs_is_merged_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, change("r", 1, "a"), change("r", 2, "b"))
    latest.run(DEBEZIUM)
    assert engine(latest.table) == "deltalake"
    spark.sql(f"ALTER TABLE delta.`{latest.table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    latest.write(0, tombstone(1), change("u", 2, "c", "b"))
    latest.run(DEBEZIUM)
    assert engine(latest.table) == "spark"
    assert latest.rows("id", "name") == [(2, "c")]


def test_keys_that_a_partition_cannot_hold_become_dead_letters_or_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    latest = Latest(spark, tmp_path)
    columns = "partition INT, offset BIGINT, timestamp TIMESTAMP, key STRING, value STRING"
    spark.sql(f"CREATE TABLE delta.`{latest.table}` ({columns}) USING delta PARTITIONED BY (key)")
    dead = tmp_path / "dead"
    given = {**PLAIN, "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(dead)}
    for number in (b"1", b"2"):
        latest.write(0, *(Record(key, number) for key in (b"", b"__HIVE_DEFAULT_PARTITION__", b" ", b"a", b"b")))
        latest.run(given)
    latest.write(0, Record(b"", None), Record(b" ", None), Record(b"b", None))
    latest.run(given)
    assert latest.rows("key", "value") == [("a", "2")]
    letters = spark.read.format("delta").load(str(dead)).select("offset", "reason").collect()
    assert sorted(each.offset for each in letters) == [0, 1, 5, 6]
    assert all("partitioned by key" in each.reason for each in letters)
    other = Latest(spark, tmp_path, "other")
    spark.sql(f"CREATE TABLE delta.`{other.table}` ({columns}) USING delta PARTITIONED BY (timestamp)")
    with pytest.raises(ConfigurationError, match="partitioned by timestamp, a TIMESTAMP"):
        other.run({**PLAIN, "ingest.keys": "key,timestamp"})


def test_deltalake_merges_nothing_and_the_table_has_the_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, Record(b"a", None))
    latest.run({**PLAIN, "ingest.commit": "deltalake"})
    latest.run({**PLAIN, "ingest.commit": "deltalake"})
    versions = DeltaTable(latest.table).history()
    assert latest.rows("key") == []
    assert [version["operation"] for version in versions] == ["WRITE", "CREATE TABLE"]


@pytest.mark.parametrize(("nested", "merged_by"), [("a", "deltalake"), ("A", "spark")])
def test_names_of_keys_columns_and_fields_may_differ_by_case(
    spark: SparkSession, tmp_path: Path, nested: str, merged_by: str
) -> None:
    latest = Latest(spark, tmp_path)
    columns = f"ID BIGINT, Nr INT, Place STRUCT<{nested}: BIGINT, b: ARRAY<STRUCT<{nested}: BIGINT>>>"
    spark.sql(f"CREATE TABLE delta.`{latest.table}` ({columns}) USING delta")
    given = {
        "ingest.value.format": "json", "ingest.kafkaColumns": "none", "ingest.keys": "Id", "ingest.orderBy": "NR",
        "ingest.value.schema": "id BIGINT, nr INT, place STRUCT<a: BIGINT, b: ARRAY<STRUCT<a: BIGINT>>, new: INT>",
        "ingest.schemaEvolution": "add",
    }  # fmt: skip
    for number in (1, 2):
        value = {"id": 7, "nr": number, "place": {"a": number, "b": [{"a": -number}], "new": 5}}
        latest.write(0, Record(b"", orjson.dumps(value)))
        latest.run(given)
        assert engine(latest.table) == merged_by
    assert latest.rows("id", "nr", "place.a", "place.b.a", "place.new") == [(7, 2, 2, [-2], 5)]


def test_a_session_that_heeds_case_merges_no_nulls(spark: SparkSession, tmp_path: Path) -> None:
    given = {
        "ingest.value.format": "json", "ingest.value.schema": "id BIGINT, name STRING", "ingest.kafkaColumns": "none",
        "ingest.keys": "id",
    }  # fmt: skip
    latest = Latest(spark, tmp_path)
    spark.sql(f"CREATE TABLE delta.`{latest.table}` (id BIGINT, NAME STRING) USING delta")
    for name, by in (("a", "spark"), ("b", "deltalake")):
        latest.write(0, Record(b"", b'{"id": 1, "name": "%s"}' % name.encode()))
        with configured(spark, {"spark.sql.caseSensitive": "true"}):
            latest.run({**given, "ingest.commit": by})
        assert latest.rows("id", "NAME") == [(1, name)]
        assert engine(latest.table) == by


def test_a_session_that_cuts_microseconds_cuts_none_of_merged_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Without its microseconds, the row of a key would not be found again."""
    given = {
        "ingest.value.format": "json", "ingest.value.schema": "at TIMESTAMP, n INT", "ingest.kafkaColumns": "none",
        "ingest.keys": "at", "ingest.commit": "spark",
    }  # fmt: skip
    latest = Latest(spark, tmp_path)
    with configured(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}):
        for n in (1, 2):
            for at in ("00.123456Z", "00.123499Z"):
                latest.write(0, Record(b"", orjson.dumps({"at": f"2021-01-01T00:00:{at}", "n": n})))
                latest.run(given)
    rows = latest.rows("at", "n")
    assert [(at.microsecond, n) for at, n in rows] == [(123456, 2), (123499, 2)]
