"""The job's lines and sums say what is in the tables: rows, and dead letters with their table."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession

from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, LANE, METRICS_LINES, TABLE
from tiered_stream.ingest import ingest_run
from tiered_stream.observe.landed_rows import ChangedKeys, LandedRows

JSON = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT"}


def write_orders(bucket: Path, topic: str, bad: int) -> None:
    good = [Record(b"k", b'{"id": %d}' % number) for number in range(10)]
    write_topic(bucket, topic, [[*good, *[Record(b"k", b"not json")] * bad]])


def settings(folder: Path, topics: str, table: str, lane: str) -> dict[str, str]:
    dead = {"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": f"{folder}/dead"}
    places = {TABLE: table, CHECKPOINT: f"{folder}/checkpoint", LANE: lane, METRICS_LINES: "json"}
    return topic_options(folder / "bucket", topics, {**JSON, **dead, **places})


@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_a_job_with_two_bad_records_says_how_many_rows_are_in_the_table(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], lane: str
) -> None:
    write_orders(tmp_path / "bucket", "orders", bad=2)
    table = f"{tmp_path}/table"
    outcome = ingest_run.run(settings(tmp_path, "orders", table, lane))
    assert outcome.tables() == (
        LandedRows(table, spark.read.format("delta").load(table).count(), 2, f"{tmp_path}/dead"),
    )
    told = capfd.readouterr()
    said = f"12 rows read, 10 rows landed, 2 dead letters in {tmp_path}/dead, "
    assert f"ingest {table}: batch 0: {said}" in told.out or f"ingest {table}: batch 1: {said}" in told.out
    assert f"ingest {table}: in all {said}" in told.out.splitlines()[-1]
    (line,) = [orjson.loads(line) for line in told.err.splitlines() if line.startswith('{"event"')]
    assert (line["rows"], line["landed_rows"], line["dead_letters"]) == (12, 10, 2)
    assert line["tables"][0]["dead_letter_table"] == f"{tmp_path}/dead"


def test_a_query_for_many_tables_says_the_rows_and_dead_letters_of_each(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for topic, bad in {"orders": 2, "users": 0}.items():
        write_orders(tmp_path / "bucket", topic, bad)
    table = f"{tmp_path}/tables/{{topic}}"
    outcome = ingest_run.run(settings(tmp_path, "orders,users", table, "direct"))
    tables, dead = outcome.tables(), f"{tmp_path}/dead"
    assert tables is not None and set(tables) == {
        LandedRows(f"{tmp_path}/tables/orders", 10, 2, dead), LandedRows(f"{tmp_path}/tables/users", 10),
    }  # fmt: skip
    lines = capfd.readouterr().out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if f"ingest {table}: in all " in line]
    assert "22 rows read, 20 rows landed in 2 tables, 2 dead letters of " in lines[at]
    assert sorted(lines[at + 1 : at + 3]) == [
        f"  {tmp_path}/tables/orders: 10 rows landed, 2 dead letters in {dead}",
        f"  {tmp_path}/tables/users: 10 rows landed",
    ]


@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_rows_that_a_condition_leaves_out_are_not_landed(spark: SparkSession, tmp_path: Path, lane: str) -> None:
    write_orders(tmp_path / "bucket", "orders", bad=2)
    table = f"{tmp_path}/table"
    outcome = ingest_run.run({**settings(tmp_path, "orders", table, lane), "ingest.where": "id < 3"})
    assert spark.read.format("delta").load(table).count() == 3
    assert outcome.tables() == (LandedRows(table, 3, 2, f"{tmp_path}/dead"),)


def test_a_query_that_one_table_fails_says_what_the_others_have(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for topic, bad in {"orders": 2, "users": 0}.items():
        write_orders(tmp_path / "bucket", topic, bad)
    spark.createDataFrame([], "id STRING").write.format("delta").save(f"{tmp_path}/tables/users")  # does not fit
    table = f"{tmp_path}/tables/{{topic}}"
    outcome = ingest_run.run(settings(tmp_path, "orders,users", table, "direct"))
    orders = f"{tmp_path}/tables/orders"
    assert list(outcome.failed) == [f"ingest {table}"], outcome
    assert spark.read.format("delta").load(orders).count() == 10
    assert outcome.tables() == (LandedRows(orders, 10, 2, f"{tmp_path}/dead"),)
    assert "22 rows read, 10 rows landed, 2 dead letters in " in capfd.readouterr().out


@pytest.mark.parametrize("commit", ["deltalake", "spark"])
def test_a_job_into_a_table_of_the_latest_state_says_what_became_of_its_keys(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], commit: str
) -> None:
    records = [Record(b"%d" % (number % 7), None if number > 18 else b"value %d" % number) for number in range(20)]
    table = f"{tmp_path}/table"
    given = {"ingest.mode": "upsert", "ingest.keys": "key", "ingest.commit": commit, TABLE: table}
    given |= {CHECKPOINT: f"{tmp_path}/checkpoint", "ingest.kafkaColumns": "key, value, partition, offset, timestamp"}
    write_topic(tmp_path / "bucket", "orders", [records[:10]])
    ingest_run.run(topic_options(tmp_path / "bucket", "orders", given))
    assert "10 rows read, 7 keys inserted, 0 updated, 0 deleted" in capfd.readouterr().out.splitlines()[-1]
    write_topic(tmp_path / "bucket", "orders", [records[10:]], first=10)
    outcome = ingest_run.run(topic_options(tmp_path / "bucket", "orders", given))
    assert "10 rows read, 0 keys inserted, 6 updated, 1 deleted" in capfd.readouterr().out.splitlines()[-1]
    assert outcome.tables() == (LandedRows(table, 7, keys=ChangedKeys(0, 6, 1)),)
