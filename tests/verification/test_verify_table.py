"""`verify` with Spark and Delta: what is planted in a table is found and named, and a right table is equal."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tests.delta.archive import LONG, ODD, everything, options
from tiered_stream import land, verify
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.verification import record_comparison
from tiered_stream.verification.verify_report import Difference, Kind, TableReport, VerifyReport, render_verified

CODECS, TXN = ODD.split(",")
TOPICS = f"{ODD},{LONG}"
PARTITIONS = [TopicPartition(LONG, 0)] + [TopicPartition(topic, number) for topic in (CODECS, TXN) for number in (0, 1)]

Sql = Callable[..., None]


@pytest.fixture(scope="module")
def right(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with everything in the topics; nobody writes to it."""
    folder = tmp_path_factory.mktemp("right")
    land(
        spark, options=options(TOPICS), table=str(folder / "table"), checkpoint=str(folder / "checkpoint")
    ).awaitTermination()
    return folder / "table"


@pytest.fixture
def table(right: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(right, tmp_path / "table"))


@pytest.fixture
def run(spark: SparkSession, table: Path) -> Sql:
    """Runs statements, `{}` standing for the table."""

    def statements(*each: str) -> None:
        for statement in each:
            spark.sql(statement.format(f"delta.`{table}`"))

    return statements


def verified(spark: SparkSession, table: Path | str, topics: str = TOPICS, **given: str) -> VerifyReport:
    settings = {
        name: value for name, value in options(topics).items() if name not in ("includeHeaders", "startingOffsets")
    }
    return verify(spark, options={**settings, **given}, table=str(table))


def firsts(report: VerifyReport) -> dict[TopicPartition, Difference | None]:
    return {each.partition: each.first for each in report.partitions if not each.equal}


def offsets_of(partition: TopicPartition) -> list[int]:
    rows = everything(TOPICS)
    found = zip(*(rows[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return [offset for topic, number, offset in found if TopicPartition(topic, number) == partition]


def shown(report: TableReport) -> str:
    console = Console(file=io.StringIO(), width=250)
    console.print(render_verified(report))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def where(partition: TopicPartition, *offsets: int) -> str:
    chosen = ", ".join(map(str, offsets))
    return f"WHERE topic = '{partition.topic}' AND partition = {partition.partition} AND offset IN ({chosen})"


@pytest.mark.parametrize("ends", [{}, {"startingOffsets": "earliest", "endingOffsets": "latest"}])
def test_a_right_table_is_equal(spark: SparkSession, right: Path, ends: dict[str, str]) -> None:
    report = verified(spark, right, **ends)
    assert report.equal
    assert report.records == everything(TOPICS).num_rows == sum(each.table_records for each in report.partitions)
    assert [each.partition for each in report.partitions] == PARTITIONS
    assert all(each.offsets.start == 0 or not ends for each in report.partitions)
    assert report.left_out == report.not_read == ()
    assert "is equal to its topics" in shown(report)


def test_a_flipped_bit_a_missing_a_doubled_record_and_an_exchanged_pair_are_found(
    spark: SparkSession, table: Path, run: Sql
) -> None:
    flipped, missing, doubled, exchanged = PARTITIONS[:4]
    at = {each: offsets_of(each)[len(offsets_of(each)) // 2] for each in PARTITIONS}
    other = offsets_of(exchanged)[-3]
    byte = "unhex(lpad(hex(conv(hex(substring(value, 41, 1)), 16, 10) ^ 4), 2, '0'))"
    run(
        f"UPDATE {{}} SET value = overlay(value PLACING {byte} FROM 41 FOR 1) {where(flipped, at[flipped])}",
        f"DELETE FROM {{}} {where(missing, at[missing])}",
        f"INSERT INTO {{0}} SELECT * FROM {{0}} {where(doubled, at[doubled])}",
        f"UPDATE {{}} SET offset = {other} + {at[exchanged]} - offset {where(exchanged, at[exchanged], other)}",
    )
    report = verified(spark, table)
    found = firsts(report)
    assert {partition: (each.offset, each.kind) for partition, each in found.items() if each} == {
        flipped: (at[flipped], Kind.DIFFERENT),
        missing: (at[missing], Kind.MISSING),
        doubled: (at[doubled], Kind.DUPLICATE),
        exchanged: (at[exchanged], Kind.DIFFERENT),
    }
    one, two, three, four = (found[each] for each in PARTITIONS[:4])
    assert one and two and three and four
    (value,) = one.columns
    assert value.column == "value"
    assert all(" at byte 24 of " in each for each in (value.topic, value.table))
    assert (three.copies, three.counts, four.counts) == (2, ((Kind.DUPLICATE, 1),), ((Kind.DIFFERENT, 2),))
    text = shown(report)
    assert f"offset {at[missing]} is missing from the table" in text
    assert f"offset {at[doubled]} is 2 times in the table" in text
    assert f"(and more, up to offset {65_535})" in text

    as_json = orjson.loads(report.to_json())
    assert (as_json["equal"], as_json["version"]) == (False, report.version)
    assert [each["equal"] for each in as_json["partitions"]] == [False] * 4 + [True]
    assert as_json["partitions"][1]["first"] == {
        "offset": at[missing], "kind": "missing", "copies": 0, "columns": [], "counts": [["missing", 1]],
    }  # fmt: skip


@pytest.mark.slow
def test_whatever_column_differs_is_named(
    spark: SparkSession, table: Path, run: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_comparison, "AT_ONCE", 2)
    headers = "array(named_struct('key', 'planted', 'value', CAST(NULL AS BINARY)))"
    changes = {
        PARTITIONS[0]: "timestamp = timestamp + INTERVAL 1 MILLISECOND",
        PARTITIONS[1]: f"headers = {headers}",
        PARTITIONS[2]: "key = CASE WHEN key IS NULL THEN CAST('' AS BINARY) END",
        PARTITIONS[3]: "value = value || X'00'",
        PARTITIONS[4]: "key = value, value = key",
    }
    at = {partition: offsets_of(partition)[7] for partition in PARTITIONS}
    run(*(f"UPDATE {{}} SET {change} {where(partition, at[partition])}" for partition, change in changes.items()))
    found = firsts(verified(spark, table))
    columns = {partition: tuple(each.column for each in found[partition].columns) for partition in found}  # type: ignore[union-attr]
    assert columns == dict(
        zip(PARTITIONS, [("timestamp",), ("headers",), ("key",), ("value",), ("key", "value")], strict=True)
    )
    assert {each.offset for each in found.values() if each} <= set(at.values())
    (timestamp,) = found[PARTITIONS[0]].columns  # type: ignore[union-attr]
    assert timestamp.topic.endswith("Z") and timestamp.topic != timestamp.table
    (header,) = found[PARTITIONS[1]].columns  # type: ignore[union-attr]
    assert "planted" in header.table


@pytest.mark.slow
def test_rows_that_deletion_vectors_delete_do_not_count(spark: SparkSession, table: Path, run: Sql) -> None:
    partition = TopicPartition(CODECS, 1)
    first, second = offsets_of(partition)[30], offsets_of(partition)[70]
    run(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        f"INSERT INTO {{0}} SELECT * FROM {{0}} {where(partition, first)}",
        f"DELETE FROM {{}} {where(partition, first, second)}",
    )
    assert list(table.glob("deletion_vector*.bin"))
    (found,) = firsts(verified(spark, table)).values()
    assert found == Difference(first, Kind.MISSING, 0, (), ((Kind.MISSING, 2),))
    run(f"INSERT INTO {{0}} SELECT * FROM {{0}} VERSION AS OF 1 {where(partition, first, second)}")
    assert verified(spark, table).equal


@pytest.mark.slow
def test_a_table_with_fewer_columns_is_compared_by_those_that_it_has(
    spark: SparkSession, right: Path, tmp_path: Path
) -> None:
    names = (
        "topic, CAST(partition AS BIGINT) AS Partition, offset, CAST(value AS STRING) AS Value, current_date() AS day"
    )
    narrow = tmp_path / "narrow"
    spark.sql(f"CREATE TABLE delta.`{narrow}` USING delta AS SELECT {names} FROM delta.`{right}`")
    report = verified(spark, narrow)
    assert report.equal
    assert (report.columns, report.left_out) == (("value",), ("timestamp", "key", "headers"))
    assert "no such column: timestamp, key, headers" in shown(report)
    spark.sql(f"UPDATE delta.`{narrow}` SET value = NULL {where(PARTITIONS[0], 9)}")
    (found,) = firsts(verified(spark, narrow)).values()
    assert found is not None
    assert (found.offset, found.columns[0].table) == (9, "null")


@pytest.mark.slow
def test_a_column_may_have_back_quotes_in_its_name(spark: SparkSession, right: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "renamed"
    columns = "topic, partition, offset, value AS `a``b`"
    spark.sql(f"CREATE TABLE delta.`{renamed}` USING delta AS SELECT {columns} FROM delta.`{right}`")
    report = verified(spark, renamed, **{"ingest.kafkaColumns": "topic, partition, offset, value AS a`b"})
    assert report.equal and report.columns == ("value",)


@pytest.mark.slow
def test_a_table_may_begin_and_end_where_it_likes_unless_options_say_otherwise(
    spark: SparkSession, table: Path, run: Sql
) -> None:
    run(
        f"DELETE FROM {{}} WHERE topic = '{LONG}' AND (offset < 100 OR offset >= 18000)",
        f"DELETE FROM {{}} WHERE topic = '{TXN}'",
    )
    report = verified(spark, table)
    assert report.equal
    assert report.partitions[0].offsets == OffsetRange(100, 18_000)
    assert report.partitions[-1].topic_records == 0
    assert f"{LONG}-0: not compared: offsets 0 to 99 of the topic; offsets 18000 to 18686 of the topic" in shown(report)

    found = firsts(verified(spark, table, startingOffsets="earliest"))
    assert {partition: (each.offset, each.kind) for partition, each in found.items() if each} == {
        PARTITIONS[0]: (0, Kind.MISSING),
        PARTITIONS[3]: (offsets_of(PARTITIONS[3])[0], Kind.MISSING),
        PARTITIONS[4]: (offsets_of(PARTITIONS[4])[0], Kind.MISSING),
    }


@pytest.mark.slow
@pytest.mark.parametrize("conditions", [200, 1])
def test_only_the_given_ranges_are_compared(
    spark: SparkSession, table: Path, run: Sql, monkeypatch: pytest.MonkeyPatch, conditions: int
) -> None:
    monkeypatch.setattr(record_comparison, "MAX_CONDITIONS", conditions)
    run(f"DELETE FROM {{}} {where(PARTITIONS[0], 50, 500)}")
    settings = options(TOPICS)
    for wanted, equal in (((51, 500), True), ((50, 500), False), ((51, 501), False)):
        ranges = {PARTITIONS[0]: OffsetRange(*wanted), PARTITIONS[1]: OffsetRange(3, 3)}
        report = verify(spark, options=settings, table=str(table), ranges=ranges)
        assert [each.partition for each in report.partitions] == PARTITIONS[:2]
        assert report.equal == equal
        assert report.records == wanted[1] - wanted[0]


@pytest.mark.slow
def test_only_records_of_the_times_are_compared(spark: SparkSession, table: Path, run: Sql) -> None:
    partition = TopicPartition(LONG, 0)
    micros = everything(LONG)["timestamp"].cast("int64").to_pylist()
    start, end = sorted(micros)[4_000] // 1000, sorted(micros)[9_000] // 1000
    run(
        f"DELETE FROM {{}} WHERE topic <> '{LONG}' OR timestamp < timestamp_millis({start}) "
        f"OR timestamp >= timestamp_millis({end})"
    )
    settings = options(LONG, {"endingOffsets": "latest"})
    report = verify(spark, options=settings, table=str(table), times=TimeRange(start, end))
    kept = sum(start * 1000 <= each < end * 1000 for each in micros)
    assert (report.equal, report.records) == (True, kept)
    assert firsts(verify(spark, options=settings, table=str(table))).keys() == {partition}


@pytest.mark.slow
def test_rows_of_a_partition_that_the_topic_does_not_have_are_told(spark: SparkSession, table: Path, run: Sql) -> None:
    run(f"UPDATE {{}} SET partition = 7 {where(PARTITIONS[0], 18_686)}")
    report = verified(spark, table)
    assert not report.equal
    assert report.not_read == ((TopicPartition(LONG, 7), 1),)
    assert f"{LONG}-7: 1 rows in the table, of a partition that the topic does not have" in shown(report)
    settings = {name: value for name, value in options(LONG).items() if name != "subscribe"}
    assert verify(spark, options={**settings, "assign": f'{{"{LONG}":[0]}}'}, table=str(table)).equal


@pytest.mark.slow
def test_a_table_by_its_name(spark: SparkSession, right: Path, topic: str) -> None:
    name = topic.replace("-", "_")
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{right}'")
    try:
        assert verified(spark, name).equal
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (None, "there is no Delta table"),
        ("topic STRING, partition INT, value BINARY", "it has no column offset"),
        ("topic STRING, partition INT, offset BIGINT", "it has no column timestamp or key or value or headers"),
        ("topic STRING, partition INT, offset BIGINT, value INT", "it has value as int, and records have it as binary"),
        ("topic STRING, partition INT, offset BIGINT, headers MAP<STRING, BINARY>", "it has headers as map"),
    ],
)
def test_a_table_that_cannot_be_compared_is_refused(
    spark: SparkSession, tmp_path: Path, definition: str | None, reason: str
) -> None:
    table = tmp_path / "table"
    if definition:
        spark.sql(f"CREATE TABLE delta.`{table}` ({definition}) USING delta")
    with pytest.raises(ConfigurationError, match=reason):
        verified(spark, table)


def test_a_relative_path_is_that_of_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/a/table` (topic STRING, partition INT, offset BIGINT, key STRING) USING delta"
    )
    monkeypatch.chdir(tmp_path)
    report = verified(spark, "a/table")
    assert (report.equal, report.records, report.columns) == (True, 0, ("key",))


def test_times_need_a_column(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    spark.sql(f"CREATE TABLE delta.`{table}` (topic STRING, partition INT, offset BIGINT, value BINARY) USING delta")
    with pytest.raises(ConfigurationError, match=f"{table} .*timestamp"):
        verify(spark, options=options(LONG), table=str(table), times=TimeRange(0, 1))
