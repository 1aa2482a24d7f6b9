"""Tables of the latest state (`ingest.mode=upsert`), with Spark and Delta."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as sql

from tests.delta import toasted_rows
from tests.delta.set_aside import damage
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import configured
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTransaction
from tiered_stream.delta.commit.deltalake_merge import DeltalakeMerge
from tiered_stream.delta.commit.merge import MergedTable, MergeTransaction
from tiered_stream.delta.write.latest_rows import STAGED_FOLDER
from tiered_stream.errors import ConfigurationError, TableError

IMAGE = "STRUCT<id: BIGINT, name: STRING>"
DEBEZIUM = {
    "ingest.value.format": "json",
    "ingest.value.schema": f"before {IMAGE}, after {IMAGE}, op STRING, ts_ms BIGINT",
    "ingest.key.format": "json",
    "ingest.key.schema": "id BIGINT",
    "ingest.envelope": "debezium",
    "ingest.kafkaColumns": "none",
    "ingest.keys": "id",
}
PLAIN = {"ingest.keys": "key", "ingest.key.format": "string", "ingest.value.format": "string",
         "ingest.kafkaColumns": "partition, offset, timestamp"}  # fmt: skip


def change(op: str, key: int, name: str | None = None, old: str | None = None) -> Record:
    before = None if op in "cr" else {"id": key, "name": old}
    after = None if op == "d" else {"id": key, "name": name}
    value = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "orders"}}
    return Record(orjson.dumps({"id": key}), orjson.dumps(value))


def tombstone(key: int) -> Record:
    return Record(orjson.dumps({"id": key}), None)


class Latest:
    """Lands topics in a table of the latest state."""

    commit = "auto"
    """Who merges: delta-spark (`spark`), or deltalake (`auto`, as tables are in a local folder)."""

    def __init__(self, spark: SparkSession, folder: Path, name: str = "table") -> None:
        self.spark, self.bucket = spark, folder / "bucket"
        self.table, self.checkpoint = folder / name, folder / f"{name} checkpoint"
        self._ends: dict[int, int] = {}

    def write(self, partition: int, *records: Record) -> None:
        first = self._ends.get(partition, 0)
        write_topic(self.bucket, "orders", [[]] * partition + [records], first)
        self._ends[partition] = first + len(records)

    def run(self, given: dict[str, str], lane: str = "auto") -> None:
        settings = {"ingest.mode": "upsert", "ingest.commit": self.commit}
        query = land(
            self.spark, options=topic_options(self.bucket, "orders", {**settings, **given}), table=str(self.table),
            checkpoint=str(self.checkpoint), lane=lane,
        )  # fmt: skip
        query.awaitTermination()

    def rows(self, *columns: str | Column) -> list[Any]:
        found = self.spark.read.format("delta").load(str(self.table)).select(*columns).collect()
        return sorted(tuple(row) for row in found)

    def history(self) -> list[Row]:
        return self.spark.sql(f"DESCRIBE HISTORY delta.`{self.table}`").collect()


@pytest.fixture(autouse=True, params=["auto", "spark"])
def merge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Class of the transactions by which rows are merged, for each of the committers."""
    monkeypatch.setattr(Latest, "commit", request.param)
    return MergeTransaction if request.param == "spark" else DeltalakeMerge


def test_debeziums_changes_leave_the_databases_rows(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, change("r", 1, "a"), change("r", 2, "b"), change("u", 1, "c", "a"), change("r", 5, "e"))
    latest.write(1, change("c", 3, "d"), change("d", 3, old="d"), tombstone(3), change("c", 4, None))
    latest.run(DEBEZIUM)
    assert latest.rows("id", "name", "__op") == [(1, "c", "u"), (2, "b", "r"), (4, None, "c"), (5, "e", "r")]
    # The key 2 becomes the key 6: Debezium writes a delete of the old key, its tombstone, and an insert of the new one.
    latest.write(0, change("d", 2, old="b"), tombstone(2), change("c", 6, "b"), change("d", 1, old="c"))
    latest.write(0, change("c", 1, "again"), tombstone(5))
    latest.run(DEBEZIUM)
    assert latest.rows("id", "name") == [(1, "again"), (4, None), (6, "b")]
    assert not list((latest.table / STAGED_FOLDER).glob("*.parquet"))


def test_a_batch_that_is_repeated_after_its_commit_changes_nothing(
    spark: SparkSession, tmp_path: Path, merge: type[Any]
) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, change("r", 1, "a"), change("r", 2, "b"))
    commit = merge.commit

    def commit_and_die(self: Any, batch: Any) -> int:
        commit(self, batch)
        raise TableError("the driver dies")

    with patch.object(merge, "commit", commit_and_die), pytest.raises(StreamingQueryException, match="dies"):
        latest.run(DEBEZIUM)
    assert latest.rows("id") == [(1,), (2,)]
    spark.sql(f"DELETE FROM delta.`{latest.table}` WHERE id = 2")
    latest.run(DEBEZIUM)
    assert latest.rows("id") == [(1,)]
    assert [row["operation"] for row in latest.history()].count("MERGE") == 1
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None


def test_delta_itself_refuses_a_batch_that_it_has(spark: SparkSession, tmp_path: Path, merge: type[Any]) -> None:
    """Two drivers may both find that the table lacks the batch."""
    latest = Latest(spark, tmp_path)
    latest.write(0, change("r", 1, "a"))
    commit = merge.commit

    def commit_twice(self: Any, batch: Any) -> int:
        other = (self._of if merge is DeltalakeMerge else self._table).begin()
        with patch.object(MergedTable, "remove", lambda *_: None):
            commit(self, batch)
        return commit(other, batch)

    with patch.object(merge, "commit", commit_twice):
        latest.run(DEBEZIUM)
    assert [row["operation"] for row in latest.history()].count("MERGE") == 1


def test_rows_that_another_writer_adds_first_to_an_empty_table_are_updated(
    spark: SparkSession, tmp_path: Path, merge: type[Any]
) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, *(change("r", key, "old") for key in range(3)))
    latest.run(DEBEZIUM)
    latest.write(0, change("u", 1, "new", "old"), change("d", 2, old="old"), change("c", 3, "new"))
    seen = iter([False])
    has_rows = DeltaSparkTransaction.has_rows

    def has_none_at_first(self: DeltaSparkTransaction) -> bool:
        return next(seen, has_rows(self))

    with patch.object(DeltaSparkTransaction, "has_rows", has_none_at_first):
        latest.run(DEBEZIUM)
    assert latest.rows("id", "name") == [(0, "old"), (1, "new"), (3, "new")]
    assert merge is DeltalakeMerge or not list(seen)


def test_a_batch_that_deletes_only_unknown_keys_is_committed(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, tombstone(1))
    latest.run(DEBEZIUM)
    latest.write(0, change("c", 2, "b"))
    latest.run(DEBEZIUM)
    assert latest.rows("id", "name") == [(2, "b")]


def test_plain_records_keep_the_last_value_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, Record(b"a", b"1"), Record(b"b", b"1"), Record(b"a", b"2"))
    latest.write(1, Record(b"c", b"1"))
    latest.run(PLAIN)
    latest.write(0, Record(b"b", None), Record(b"d", b""))
    latest.run(PLAIN)
    assert latest.rows("key", "value", "partition", "offset") == [("a", "2", 0, 2), ("c", "1", 1, 0), ("d", "", 0, 4)]


def test_flattened_events_leave_the_databases_rows(spark: SparkSession, tmp_path: Path) -> None:
    def event(key: int, **row: object) -> Record:
        return Record(orjson.dumps({"id": key}), orjson.dumps({"id": key, "__deleted": "false", **row}))

    given = {
        "ingest.value.format": "json", "ingest.value.schema": "id BIGINT, name STRING, at BIGINT, __deleted STRING",
        "ingest.envelope": "flattened", "ingest.times": "at=millis", "ingest.keys": "id",
        "ingest.kafkaColumns": "none",
    }  # fmt: skip
    latest = Latest(spark, tmp_path)
    latest.write(0, event(1, name="a", at=1), event(2, name="b", at=2), event(3, name="c"), event(3, __deleted="true"))
    latest.run(given)
    latest.write(0, event(1, name=None, __deleted="true"), event(2, name="d", at=1_700_000_000_123))
    latest.run(given)
    (row,) = spark.read.format("delta").load(str(latest.table)).selectExpr("*", "unix_millis(at) AS millis").collect()
    assert (row.id, row.name, row.millis, "__deleted" in row.asDict()) == (2, "d", 1_700_000_000_123, False)


def test_a_key_in_two_partitions_stops_the_query_unless_a_column_orders_it(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, Record(b"a", b"late", (), 2000))
    latest.write(1, Record(b"a", b"early", (), 1000), Record(b"b", b"1", (), 1500))
    with pytest.raises(StreamingQueryException, match="in the partitions orders/0 and orders/1.*set ingest.orderBy"):
        latest.run(PLAIN)
    latest.run({**PLAIN, "ingest.orderBy": "timestamp"})
    assert latest.rows("key", "value") == [("a", "late"), ("b", "1")]
    latest.write(1, Record(b"a", b"later than early", (), 1999), Record(b"b", None, (), 1400), Record(b"c", None))
    latest.write(0, Record(b"d", b"1", (), 1))
    latest.run({**PLAIN, "ingest.orderBy": "timestamp"})
    assert latest.rows("key", "value") == [("a", "late"), ("b", "1"), ("d", "1")]


@pytest.mark.parametrize("columns", ["partition", "topic, partition as Part"])
@pytest.mark.parametrize("value", [b"new", None])
def test_a_key_that_moves_to_another_partition_later_stops_the_query_unless_a_column_orders_it(
    spark: SparkSession, tmp_path: Path, value: bytes | None, columns: str
) -> None:
    latest = Latest(spark, tmp_path)
    given = {**PLAIN, "ingest.kafkaColumns": f"{columns}, timestamp"}
    latest.write(0, Record(b"a", b"old", (), 1000), Record(b"b", b"1", (), 1000), Record(b"c", b"1", (), 1000))
    latest.run(given)
    latest.write(1, Record(b"a", value, (), 2000))
    latest.write(0, Record(b"b", b"2", (), 2000), Record(b"c", None, (), 2000))
    found = "orders/0 and orders/1" if "topic" in columns else "0 and 1"
    with pytest.raises(StreamingQueryException, match=f"in the partitions {found}, .*set ingest.orderBy"):
        latest.run(given)
    assert latest.rows("key", "value") == [("a", "old"), ("b", "1"), ("c", "1")]
    latest.run({**given, "ingest.orderBy": "timestamp"})
    assert latest.rows("key", "value") == [*([("a", "new")] if value else []), ("b", "2")]


def test_a_table_with_deletion_vectors_clustering_and_columns_of_its_own_is_merged(
    spark: SparkSession, tmp_path: Path
) -> None:
    latest = Latest(spark, tmp_path, "table [x]{y}, 50%")
    spark.sql(
        f"CREATE TABLE delta.`{latest.table}` (id BIGINT, name STRING, note STRING, long INT GENERATED ALWAYS AS "
        "(length(name))) USING delta CLUSTER BY (id) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    given = {**DEBEZIUM, "ingest.ownColumns": "Note", "ingest.schemaEvolution": "add"}
    latest.write(0, *(change("r", key, "x" * key) for key in range(20)))
    latest.run(given)
    spark.sql(f"UPDATE delta.`{latest.table}` SET note = 'kept' WHERE id = 3")
    latest.write(0, change("u", 3, "new", "xxx"), change("d", 4), tombstone(4))
    latest.run(given)
    assert [row for row in latest.rows("id", "name", "note", "long") if row[0] in (2, 3, 4)] == [
        (2, "xx", None, 2),
        (3, "new", "kept", 3),
    ]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{latest.table}`").first()
    assert detail is not None and "deletionVectors" in detail["tableFeatures"]


@pytest.mark.parametrize("batches", ["one batch", "a batch for each record"])
def test_a_row_that_was_deleted_and_inserted_again_is_a_new_row(
    spark: SparkSession, tmp_path: Path, batches: str
) -> None:
    """Columns of the user's own keep their values in an update, and in nothing else."""
    latest = Latest(spark, tmp_path)
    own = "note STRING, tags ARRAY<STRING>, place STRUCT<a: INT>, amount DECIMAL(20, 2)"
    spark.sql(f"CREATE TABLE delta.`{latest.table}` (id BIGINT, name STRING, {own}) USING delta")
    given = {**DEBEZIUM, "ingest.ownColumns": "note, Tags, place, amount", "ingest.schemaEvolution": "add"}
    latest.write(0, *(change("r", key, "old") for key in (1, 2, 3)))
    latest.run(given)
    kept = "note = 'kept', tags = array('t'), place = struct(1 AS a), amount = 1.5"
    spark.sql(f"UPDATE delta.`{latest.table}` SET {kept}")
    latest.write(0, change("d", 1, old="old"), tombstone(1), change("c", 1, "new"), change("u", 2, "new", "old"))
    latest.write(0, change("c", 4, "x"), change("d", 4, old="x"), change("c", 4, "new"))
    latest.run({**given, **({} if batches == "one batch" else {"maxOffsetsPerTrigger": "1"})})
    none, all_kept = (None,) * 4, ("kept", "t", 1, Decimal("1.50"))
    assert latest.rows("id", "name", "note", sql.col("tags")[0], "place.a", "amount") == [
        (1, "new", *none), (2, "new", *all_kept), (3, "old", *all_kept), (4, "new", *none)
    ]  # fmt: skip


def test_a_delete_makes_a_new_row_only_if_it_is_not_older_than_the_row_that_it_deletes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each key has a row of the time 5; then a delete and a new row of other times, in this order of their offsets."""
    changes = {"older delete": (-3, 6), "equal delete": (-5, 6), "newer delete": (-6, 7), "delete behind": (6, -5),
               "older delete behind": (6, -3), "equal delete behind": (6, -6, 6), "no delete": (6,)}  # fmt: skip
    latest = Latest(spark, tmp_path)
    columns = "key STRING, value STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, note STRING"
    spark.sql(f"CREATE TABLE delta.`{latest.table}` ({columns}) USING delta")
    given = {**PLAIN, "ingest.ownColumns": "note", "ingest.orderBy": "timestamp"}
    latest.write(0, *(Record(key.encode(), b"5", (), 1005) for key in changes))
    latest.run(given)
    spark.sql(f"UPDATE delta.`{latest.table}` SET note = 'kept'")
    latest.write(
        0,
        *(
            Record(key.encode(), b"%d" % at if at > 0 else None, (), 1000 + abs(at))
            for key, times in changes.items()
            for at in times
        ),
    )
    latest.run(given)
    assert latest.rows("key", "value", "note") == [
        ("delete behind", "6", "kept"), ("equal delete", "6", None), ("equal delete behind", "6", None),
        ("newer delete", "7", None), ("no delete", "6", "kept"), ("older delete", "6", "kept"),
        ("older delete behind", "6", "kept"),
    ]  # fmt: skip


def test_a_table_with_not_null_fields_in_structs_is_merged(spark: SparkSession, tmp_path: Path) -> None:
    latest = Latest(spark, tmp_path)
    place = "place STRUCT<code: INT NOT NULL, inner: STRUCT<name: STRING NOT NULL, note: STRING>>"
    spark.sql(f"CREATE TABLE delta.`{latest.table}` (id BIGINT, {place}) USING delta")
    given = {"ingest.value.format": "json", "ingest.value.schema": f"id BIGINT, {place.replace(' NOT NULL', '')}",
             "ingest.keys": "id", "ingest.kafkaColumns": "none"}  # fmt: skip
    for code in (1, 2):
        latest.write(0, Record(b"", orjson.dumps({"id": 7, "place": {"code": code, "inner": {"name": f"n{code}"}}})))
        latest.run(given)
    assert latest.rows("id", "place.code", "place.inner.name", "place.inner.note") == [(7, 2, "n2", None)]
    assert [row["operation"] for row in latest.history()].count("MERGE") == 2


@pytest.mark.parametrize("ignored", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_no_setting_of_the_session_lets_a_merge_leave_out_staged_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: type[Any], ignored: str
) -> None:
    latest = Latest(spark, tmp_path)
    latest.write(0, change("r", 1, "a"))
    commit = merge.commit

    def commit_without_the_file(self: Any, batch: Any) -> int:
        damage(latest.table / STAGED_FOLDER, ignored)
        version: int = commit(self, batch)
        return version

    monkeypatch.setattr(merge, "commit", commit_without_the_file)
    with configured(spark, {f"spark.sql.files.{ignored}": "true"}), pytest.raises(StreamingQueryException):
        latest.run(DEBEZIUM)
    assert [row["operation"] for row in latest.history()].count("MERGE") == 0


def test_dead_letters_of_a_repeated_batch_are_there_once(spark: SparkSession, tmp_path: Path, merge: type[Any]) -> None:
    latest = Latest(spark, tmp_path)
    given = {**DEBEZIUM, "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(tmp_path / "dead"),
             "ingest.maxDeadLetters": "40%"}  # fmt: skip
    latest.write(0, change("r", 1, "a"), Record(b"x", b"garbage"), change("u", 1, "b", "a"))

    def die(self: Any, batch: Any) -> int:
        raise TableError("the driver dies")

    with patch.object(merge, "commit", die), pytest.raises(StreamingQueryException, match="dies"):
        latest.run(given)
    assert latest.rows("id") == []
    latest.run(given)
    assert latest.rows("id", "name") == [(1, "b")]
    dead = spark.read.format("delta").load(str(tmp_path / "dead")).collect()
    assert [(row.offset, row.failed, row.target) for row in dead] == [(1, "key", latest.table.as_uri())]


def test_the_condition_of_ingest_mergeOn_limits_the_files_and_is_checked(spark: SparkSession, tmp_path: Path) -> None:  # noqa: N802
    latest = Latest(spark, tmp_path)
    latest.write(0, change("r", 1, "a"), change("r", 2, "b"))
    for condition, said in {"target.nope = 1": "nope", "target.id <": "syntax", "source.extra = 1": "extra"}.items():
        with pytest.raises(ConfigurationError, match=f"(?is)ingest.mergeOn={condition} is no condition.*{said}"):
            latest.run({**DEBEZIUM, "ingest.mergeOn": condition})
    latest.run({**DEBEZIUM, "ingest.mergeOn": "target.id > 1"})
    latest.write(0, change("u", 1, "c", "a"), change("u", 2, "d", "b"))
    latest.run({**DEBEZIUM, "ingest.mergeOn": "target.id > 1"})
    assert latest.rows("id", "name") == [(1, "a"), (1, "c"), (2, "d")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ingest.keys": "nope"}, "the key column nope is no column"),
        (
            {"ingest.commit": "deltalake", "ingest.mergeOn": "target.id > 0"},
            "needs Spark's MERGE, because ingest.mergeOn is",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    latest = Latest(spark, tmp_path)
    with pytest.raises(ConfigurationError, match=said):
        latest.run({**DEBEZIUM, **given})
    with pytest.raises(ConfigurationError, match="Spark lane .*ingest.mode=upsert"):
        latest.run(DEBEZIUM, lane="spark")


class Toasted(Latest):
    """Table of rows with large values."""

    def run(self, given: dict[str, str], lane: str = "auto") -> None:
        super().run({**toasted_rows.SETTINGS, **given}, lane)

    def large_rows(self) -> dict[int, tuple[int, str | None]]:
        rows = self.spark.read.format("delta").load(str(self.table)).collect()
        return toasted_rows.by_key([row.asDict() for row in rows])


def test_an_update_with_placeholders_keeps_the_rows_values(spark: SparkSession, tmp_path: Path) -> None:
    table, given = Toasted(spark, tmp_path), toasted_rows.ENVELOPES["debezium"]
    table.write(0, *toasted_rows.first("debezium"))
    table.run(given)
    table.write(0, *toasted_rows.second("debezium"))
    table.run(given)
    assert table.large_rows() == toasted_rows.LATEST


def test_a_placeholder_keeps_the_last_value_by_the_column_that_orders_rows(spark: SparkSession, tmp_path: Path) -> None:
    table, given = Toasted(spark, tmp_path), {**toasted_rows.ENVELOPES["flattened"], "ingest.orderBy": "timestamp"}
    table.write(0, *toasted_rows.first("flattened", at=5))
    table.run(given)
    table.write(0, *toasted_rows.out_of_order("flattened"))
    table.run(given)
    assert table.large_rows() == toasted_rows.LATEST_BY_TIME


def test_a_column_that_is_not_null_keeps_the_placeholder_of_a_new_row(spark: SparkSession, tmp_path: Path) -> None:
    table, given = Toasted(spark, tmp_path), toasted_rows.ENVELOPES["none"]
    change, delete = (partial(each, "none") for each in (toasted_rows.change, toasted_rows.delete))
    columns = (
        f"{toasted_rows.DDL.replace('doc STRING', 'doc STRING NOT NULL')}, key STRUCT<id: BIGINT>, timestamp TIMESTAMP"
    )
    spark.sql(f"CREATE TABLE delta.`{table.table}` ({columns}) USING delta")
    table.write(0, change(1, 1, None), delete(2), change(2, 2, None))
    for _ in range(2):
        table.run(given)
        assert table.rows("id", "doc", "tags") == [(1, toasted_rows.TOAST, None), (2, toasted_rows.TOAST, None)]
        table.write(0, change(1, 3, None))
    table.write(0, change(1, 4, "known"), change(1, 5, None))
    table.run(given)
    assert table.rows("id", "n", "doc") == [(1, 5, "known"), (2, 2, toasted_rows.TOAST)]


def test_another_placeholder_and_other_names_of_columns_are_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    """Names of the table may differ from names of records by case, and have dots and quotes."""
    latest = Latest(spark, tmp_path)
    spark.sql(f"CREATE TABLE delta.`{latest.table}` (ID BIGINT, `d.o'C``s` STRING, own STRING) USING delta")
    given = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT, `d.o'c``s` STRING",
             "ingest.keys": "id", "ingest.kafkaColumns": "none", "ingest.ownColumns": "own",
             "ingest.unavailableValue": "hex:3f3f"}  # fmt: skip
    for text in ("a", "??"):
        latest.write(0, Record(b"", orjson.dumps({"id": 1, "d.o'c`s": text})))
        latest.run(given)
    assert latest.rows("*") == [(1, "a", None)]
