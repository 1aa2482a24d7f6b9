"""`verify` of tables of the latest state, with Spark and Delta: wrong, missing and extra rows are found and named."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession

from tests.delta import toasted_rows
from tests.delta.test_latest_state import DEBEZIUM, PLAIN, Latest, Toasted, change, tombstone
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options
from tests.verification.test_verify_table import shown
from tiered_stream import verify
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.verification.verify_report import Kind, LatestReport

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
NESTED = {
    "ingest.value.format": "json", "ingest.keys": "id",
    "ingest.value.schema": "id BIGINT, at TIMESTAMP, hash STRUCT<a: INT, b: INT>, price DOUBLE, tags ARRAY<STRING>",
}  # fmt: skip


def verified(latest: Latest, given: dict[str, str], **more: str) -> LatestReport:
    options = topic_options(latest.bucket, "orders", {"ingest.mode": "upsert", **given, **more})
    report = verify(latest.spark, options=options, table=str(latest.table))
    assert isinstance(report, LatestReport)
    return report


def landed(latest: Latest, given: dict[str, str]) -> Latest:
    """A table with the rows 1 to 8 of two micro-batches, of which 3 is changed, and 4 and 5 are deleted."""
    latest.write(0, *(change("r", key, f"name {key}") for key in range(1, 7)))
    latest.run(given)
    latest.write(0, change("u", 3, "changed", "name 3"), change("d", 4), tombstone(4), tombstone(5))
    latest.write(1, change("c", 7, None), change("c", 8, "eight"))
    latest.run(given)
    return latest


@pytest.mark.slow
def test_a_right_table_is_the_latest_state(spark: SparkSession, tmp_path: Path) -> None:
    latest = landed(Latest(spark, tmp_path), DEBEZIUM)
    report = verified(latest, DEBEZIUM)
    assert report.equal, shown(report)
    assert (report.keys, report.topic_rows, report.table_outside, report.left_out) == (("id",), 6, 0, ())
    assert [(each.partition, each.offsets) for each in report.partitions] == [
        (ONE, OffsetRange(0, 10)), (TWO, OffsetRange(0, 2))
    ]  # fmt: skip
    assert "6 rows compared" in shown(report)


@pytest.mark.slow
def test_wrong_missing_extra_and_duplicate_rows_are_found_and_named(spark: SparkSession, tmp_path: Path) -> None:
    latest = landed(Latest(spark, tmp_path), DEBEZIUM)
    table = f"delta.`{latest.table}`"
    spark.sql(f"UPDATE {table} SET name = 'name 3' WHERE id = 3")
    spark.sql(f"DELETE FROM {table} WHERE id = 7")
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 8")
    spark.sql(f"INSERT INTO {table} (id, name) VALUES (5, 'name 5'), (99, NULL)")
    report = verified(latest, DEBEZIUM)
    assert report.counts == ((Kind.MISSING, 1), (Kind.EXTRA, 2), (Kind.DUPLICATE, 1), (Kind.DIFFERENT, 1))
    assert [(dict(each.key)["id"], each.kind) for each in report.differences] == [
        ("7", Kind.MISSING), ("5", Kind.EXTRA), ("99", Kind.EXTRA), ("8", Kind.DUPLICATE), ("3", Kind.DIFFERENT)
    ]  # fmt: skip
    text = shown(report)
    for line in (
        "row id=7 is missing from the table: orders-1, offset 0 has it",
        "row id=5 is in the table, and orders-0, offset 9 deletes it",
        "row id=99 is in the table, and no record in the topic has its key",
        "row id=8 is 2 times in the table",
        "row id=3, last in orders-0, offset 6: name is changed in the topic, name 3 in the table",
        "is not the latest state of its topics: 1 missing, 2 extra, 1 doubled, 1 different; 6 rows compared",
    ):
        assert line in text
    as_json = orjson.loads(report.to_json())
    assert (as_json["equal"], as_json["differences"][0]["key"]) == (False, [["id", "7"]])


@pytest.mark.slow
def test_records_that_the_table_has_not_taken_yet_are_not_missing(spark: SparkSession, tmp_path: Path) -> None:
    given = {"startingOffsets": "earliest"}
    latest = landed(Latest(spark, tmp_path), DEBEZIUM)
    latest.write(0, change("u", 1, "later", "name 1"), change("c", 9, "nine"))
    report = verified(latest, DEBEZIUM, **given)
    assert report.equal, shown(report)
    assert "orders-0: not compared: offsets 10 to 11 of the topic" in list(report.notes())
    report = verified(latest, DEBEZIUM, **given, endingOffsets="latest")
    assert report.counts == ((Kind.MISSING, 1), (Kind.DIFFERENT, 1))


@pytest.mark.slow
def test_rows_of_other_offsets_than_the_compared_ones_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, Record(b"a", b"1"), Record(b"b", b"1"), Record(b"c", b"1"), Record(b"d", b"1"))
    latest.run(PLAIN)
    latest.write(0, Record(b"a", b"2"), Record(b"c", None), Record(b"b", b"2"))
    latest.run(PLAIN)
    middle = {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":5}}'}
    report = verified(latest, PLAIN, **middle)
    # c is deleted at offset 5, b has its row of offset 6.
    assert [(dict(each.key)["key"], each.kind) for each in report.differences] == [("c", Kind.MISSING)]
    assert report.table_outside == 1
    spark.sql(f"UPDATE delta.`{latest.table}` SET offset = 3, key = 'e' WHERE key = 'd'")
    report = verified(latest, PLAIN, **{**middle, "endingOffsets": "latest"})
    assert {(dict(each.key)["key"], each.kind) for each in report.differences} == {
        ("d", Kind.MISSING), ("e", Kind.EXTRA)
    }  # fmt: skip


@pytest.mark.slow
def test_a_key_in_two_partitions_needs_a_column_that_orders_it(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    ordered = {**PLAIN, "ingest.orderBy": "timestamp"}
    latest.write(0, Record(b"a", b"late", (), 2000), Record(b"b", b"1", (), 1500))
    latest.write(1, Record(b"a", b"early", (), 1000))
    latest.run(ordered)
    assert verified(latest, ordered).equal
    with pytest.raises(ConfigurationError, match=r"orders/0 and orders/1.*ingest\.orderBy"):
        verified(latest, PLAIN)


@pytest.mark.slow
def test_nested_columns_and_columns_of_odd_names_are_compared_whole(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path, "table [x]{y}, 50%")
    value = {"id": 1, "at": "2024-01-01T00:00:00.000001Z", "hash": {"a": None, "b": 2}, "price": 0.1, "tags": [None]}
    latest.write(0, Record(None, orjson.dumps(value)), Record(None, orjson.dumps({"id": 2, "tags": ["x"]})))
    latest.run(NESTED)
    spark.sql(f"ALTER TABLE delta.`{latest.table}` ADD COLUMNS (note STRING)")
    report = verified(latest, NESTED)
    assert report.equal and report.left_out == ()
    spark.sql(f"UPDATE delta.`{latest.table}` SET note = 'mine' WHERE id = 1")
    assert verified(latest, NESTED).counts == ((Kind.DIFFERENT, 1),)
    report = verified(latest, NESTED, **{"ingest.ownColumns": "note"})
    assert report.equal and report.left_out == ("note",)
    spark.sql(f"UPDATE delta.`{latest.table}` SET note = NULL")
    for change_sql, column in {
        "hash = named_struct('a', 2, 'b', NULL)": "hash",
        "at = at + INTERVAL 1 MICROSECOND": "at",
        "tags = array()": "tags",
        "price = 0.1D + 1e-16D": "price",
    }.items():
        spark.sql(f"UPDATE delta.`{latest.table}` SET {change_sql} WHERE id = 1")
        (found,) = verified(latest, NESTED).differences
        assert column in {each.column for each in found.columns}


@pytest.mark.slow
def test_records_that_became_dead_letters_are_no_missing_rows(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    given = {**DEBEZIUM, "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(tmp_path / "dead")}
    latest.write(0, change("r", 1, "a"), Record(b"x", b"garbage"), change("r", 2, "b"), change("t", 2))
    latest.run(given)
    report = verified(latest, given)
    assert report.equal and report.topic_rows == 2


@pytest.mark.slow
def test_each_of_the_records_that_a_column_orders_alike_is_right(spark: SparkSession, tmp_path: Path) -> None:
    given = {**PLAIN, "ingest.orderBy": "timestamp"}
    latest = Latest(spark, tmp_path)
    # Of a micro-batch, the partition decides; later, the micro-batch does.
    latest.write(1, Record(b"a", b"early", (), 4), Record(b"a", b"one", (), 5), Record(b"b", b"one", (), 5))
    latest.write(1, Record(b"c", None, (), 5), Record(b"d", b"one", (), 5))
    latest.run(given)
    latest.write(0, Record(b"a", b"zero", (), 5), Record(b"b", None, (), 5), Record(b"c", b"zero", (), 5))
    latest.run(given)
    assert latest.rows("key", "value") == [("a", "zero"), ("c", "zero"), ("d", "one")]
    report = verified(latest, given)
    assert report.equal, shown(report)
    table = f"delta.`{latest.table}`"
    spark.sql(f"UPDATE {table} SET value = CASE key WHEN 'a' THEN 'early' ELSE 'other' END WHERE key <> 'd'")
    spark.sql(f"DELETE FROM {table} WHERE key = 'd'")
    assert verified(latest, given).counts == ((Kind.MISSING, 1), (Kind.EXTRA, 1), (Kind.DIFFERENT, 1))


@pytest.mark.slow
def test_values_that_the_database_did_not_send_are_those_of_earlier_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, given = Toasted(spark, tmp_path), {**toasted_rows.SETTINGS, **toasted_rows.ENVELOPES["debezium"]}
    for records in (toasted_rows.first("debezium"), toasted_rows.second("debezium")):
        table.write(0, *records)
        table.run(given)
    report = verified(table, given)
    assert report.equal and report.topic_rows == len(toasted_rows.LATEST), shown(report)
    later = {"startingOffsets": '{"orders":{"0":7}}', "endingOffsets": "latest"}
    report = verified(table, given, **later)
    assert report.equal and report.table_outside == 2, shown(report)  # the rows 1 and 7 have values of the first batch
    spark.sql(f"UPDATE delta.`{table.table}` SET doc = '{toasted_rows.TOAST}' WHERE id IN (1, 2)")
    report = verified(table, given)
    assert {(dict(each.key)["id"], *(column.column for column in each.columns)) for each in report.differences} == {
        ("1", "doc"), ("2", "doc")
    }  # fmt: skip
    spark.sql(f"UPDATE delta.`{table.table}` SET n = 9 WHERE id = 1")
    report = verified(table, given, **later)
    assert {(dict(each.key)["id"], *(column.column for column in each.columns)) for each in report.differences} == {
        ("1", "n"), ("2", "doc")
    }  # fmt: skip
