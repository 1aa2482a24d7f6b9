"""Commits through the session's own delta-spark: what it makes of them, and what it says to others' changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import delta.exceptions.captured
import orjson
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType

from tests.delta.committing import QUERY, log_file, log_of, offsets, overwrite, planned, table, written
from tests.rigs.stack.spark import configured
from tiered_stream.delta.catalog.address import TableAddress, find_address
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, is_conflict
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.commit_library import lock_for_deltalake
from tiered_stream.delta.commit.compaction import MIN_SMALL_FILES, compaction_of
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTable, has_delta_spark
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, add_columns, create_table, describe
from tiered_stream.delta.commit.open_table import growth_of
from tiered_stream.delta.commit.transaction import BatchCommit, UncertainCommitError
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_DELTALAKE, COMMIT_BY_SPARK, TableSpec
from tiered_stream.delta.settings.row_settings import RowSettings
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.row_choices import Evolution


@pytest.fixture(params=["as py4j has them", "as delta-spark has them"])
def conflicts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta's conflicts are other classes in Python once anything has imported `delta.tables`."""
    if request.param == "as py4j has them":
        monkeypatch.setattr(delta.exceptions.captured, "_convert_delta_exception", lambda error: None)


def address_of(spark: SparkSession, files: TableSpec) -> TableAddress:
    return find_address(spark, str(folder(files)))


def spark_table(spark: SparkSession, files: TableSpec) -> DeltaSparkTable:
    return DeltaSparkTable(spark, address_of(spark, files))


def folder(files: TableSpec) -> Path:
    return log_file(files, 0).parents[1]


def fail_at_gap(last: int | None, done: int) -> None:
    raise TableError(f"after {last} comes {done}")


def by_spark(spark: SparkSession, files: TableSpec) -> TableCommits:
    opened = replace(planned(files, spark_table(spark, files)), by=COMMIT_BY_SPARK)
    return TableCommits(opened, fail_at_gap, sleep=lambda _: None)


def test_a_batch_is_one_streaming_update_of_spark(spark: SparkSession, files: TableSpec) -> None:
    assert has_delta_spark(spark)
    both = [*written(files, 10, 5), *written(files, 4, 90)]
    by_spark(spark, files).commit(QUERY, 0, both)
    (entry,) = spark.sql(f"DESCRIBE HISTORY delta.`{folder(files)}` LIMIT 1").collect()
    assert (entry["operation"], entry["isBlindAppend"]) == ("STREAMING UPDATE", True)
    assert entry["operationParameters"] == {"outputMode": "Append", "queryId": QUERY, "epochId": "0"}
    assert entry["operationMetrics"] == {
        "numAddedFiles": "2",
        "numRemovedFiles": "0",
        "numOutputRows": "14",
        "numOutputBytes": str(sum(file.size for file in both)),
    }
    assert orjson.loads(entry["userMetadata"])["endOffsets"] == {"orders": {"3": 94}}
    (transaction,) = [action["txn"] for action in log_of(files, 1) if "txn" in action]
    assert (transaction["appId"], transaction["version"]) == (QUERY, 0) and transaction["lastUpdated"] > 1.6e12
    assert offsets(files) == [*range(5, 15), *range(90, 94)]
    # The statistics are Delta's: it leaves out files by them.
    assert len(spark.read.format("delta").load(str(folder(files))).where("offset < 20").inputFiles()) == 1


def test_a_day_partition_is_spark_s_own(spark: SparkSession, tmp_path: Path) -> None:
    files = TableSpec((tmp_path / "table").as_uri(), day_column="day")
    create_table(files, table_schema(True, "day"), {})
    TableCommits(planned(files, spark_table(spark, files)), fail_at_gap).commit(QUERY, 0, written(files, 10))
    rows = spark.read.format("delta").load(str(folder(files))).where("day = DATE '2023-11-14'")
    assert rows.count() == 10


@pytest.mark.parametrize("other", [by_spark, None])
def test_a_repeated_batch_commits_nothing(spark: SparkSession, files: TableSpec, other: Any) -> None:
    """Whoever has committed it."""
    first = by_spark(spark, files) if other else TableCommits(planned(files), fail_at_gap)
    first.commit(QUERY, 0, written(files, 10))
    again = by_spark(spark, files)
    assert again.is_committed(QUERY, 0) and not again.is_committed(QUERY, 1)
    again.commit(QUERY, 0, written(files, 10))
    assert table(files).version() == 1 and offsets(files) == list(range(10))


@pytest.mark.slow
def test_batches_between_those_of_others(spark: SparkSession, files: TableSpec) -> None:
    commits = by_spark(spark, files)
    for batch_id in range(3):
        commits.commit(QUERY, batch_id, written(files, 2, 2 * batch_id))
        spark.sql(f"OPTIMIZE delta.`{folder(files)}`")
        spark.sql(f"DELETE FROM delta.`{folder(files)}` WHERE offset = {2 * batch_id}")
    assert offsets(files) == [1, 3, 5]


@pytest.mark.usefixtures("conflicts")
def test_the_same_batch_by_another_driver_in_the_midst_of_a_commit_is_a_conflict(
    spark: SparkSession, files: TableSpec
) -> None:
    begun = spark_table(spark, files).begin()
    TableCommits(planned(files), fail_at_gap).commit(QUERY, 0, written(files, 10))
    with pytest.raises(UncertainCommitError, match="ConcurrentTransactionException") as raised:
        begun.commit(BatchCommit(QUERY, 0, written(files, 10)))
    assert isinstance(raised.value.__cause__, JAVA_ERRORS) and is_conflict(raised.value.__cause__)
    assert offsets(files) == list(range(10))


@pytest.mark.usefixtures("conflicts")
def test_a_constraint_that_comes_in_the_midst_of_a_commit_is_noticed(
    spark: SparkSession, files: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, opened = by_spark(spark, files), spark_table(spark, files)
    begin = DeltaSparkTable.begin
    seen = 0

    def begin_and_change(self: DeltaSparkTable) -> Any:
        nonlocal seen
        transaction = begin(self)
        seen += 1
        if seen == 2:  # the first one looks back
            table(files).alter.add_constraint({"small": "offset < 5"})
        return transaction

    monkeypatch.setattr(DeltaSparkTable, "begin", begin_and_change)
    with pytest.raises(TableError, match="constraint"):
        commits.commit(QUERY, 0, written(files, 10))
    assert seen == 3 and offsets(files) == [] and begin(opened).state.version == 1


def test_a_table_that_was_replaced_or_is_gone_is_not_written_to(spark: SparkSession, files: TableSpec) -> None:
    commits = by_spark(spark, files)
    commits.commit(QUERY, 0, written(files, 10))
    DeltaTable.create(files.uri, table(files).schema(), mode="overwrite")
    with pytest.raises(TableError, match="another .*its id is"):
        commits.commit(QUERY, 1, written(files, 10, 10))
    assert offsets(files) == []
    with pytest.raises(TableError, match="that is gone"):
        spark_table(spark, TableSpec(files.uri + "%20that%20is%20gone")).begin()


def test_a_table_that_was_made_again_in_its_place_is_not_written_to(spark: SparkSession, files: TableSpec) -> None:
    commits = by_spark(spark, files)
    for batch_id in range(3):
        commits.commit(QUERY, batch_id, written(files, 10, 10 * batch_id))
    for file in log_file(files, 0).parent.iterdir():
        file.unlink()
    create_table(files, table_schema(True, None), {})
    with pytest.raises(TableError):
        commits.commit(QUERY, 3, written(files, 10, 30))
    assert table(files).version() == 0 and offsets(files) == []


def test_a_table_of_a_name_that_is_somewhere_else_now_is_not_written_to(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    name = topic.replace("-", "_")
    files = TableSpec((tmp_path / "old 1").as_uri())
    create_table(files, table_schema(True, None), {})
    try:
        spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{folder(files)}'")
        address = find_address(spark, name)
        commits = TableCommits(planned(files, DeltaSparkTable(spark, address)), fail_at_gap)
        commits.commit(QUERY, 0, written(files, 10))
        assert spark.table(name).count() == 10
        spark.sql(f"DROP TABLE {name}")
        spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta LOCATION '{tmp_path / 'new'}'")
        with pytest.raises(TableError, match="another .*/new "):
            commits.commit(QUERY, 1, written(files, 10, 10))
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert offsets(files) == list(range(10))


def test_a_commit_that_was_overwritten_is_named(spark: SparkSession, files: TableSpec) -> None:
    commits = by_spark(spark, files)
    commits.commit(QUERY, 0, written(files, 10))
    commits.commit(QUERY, 1, written(files, 5, 10))
    overwrite(files, 2, [{"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {}}}])
    with pytest.raises(TableError, match="batch 1, .*log"):
        commits.commit(QUERY, 2, written(files, 5, 15))
    assert offsets(files) == list(range(10))


@pytest.mark.slow
def test_deltas_hooks_run_after_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    files = TableSpec((tmp_path / "table").as_uri())
    create_table(
        files, table_schema(True, None), {"delta.checkpointInterval": "4", "delta.autoOptimize.autoCompact": "true"}
    )
    with configured(spark, {"spark.databricks.delta.autoCompact.minNumFiles": "3"}):
        commits = by_spark(spark, files)
        for batch_id in range(5):
            commits.commit(QUERY, batch_id, written(files, 2, 2 * batch_id))
    assert offsets(files) == list(range(10))
    operations = [entry["operation"] for entry in table(files).history()]
    assert operations.count("OPTIMIZE") >= 1 and operations.count("STREAMING UPDATE") == 5
    assert log_file(files, 4).with_name(f"{4:020d}.checkpoint.parquet").exists()


def batch_by_deltalake(spark: SparkSession, files: TableSpec) -> None:
    lock = lock_for_deltalake(spark, address_of(spark, files), files)
    TableCommits(planned(files, DeltalakeTable(files, lock)), fail_at_gap).commit(QUERY, 0, [])


def growth_by_deltalake(spark: SparkSession, files: TableSpec) -> None:
    spec = replace(files, rows=RowSettings(schema_evolution=Evolution.ADD))
    grow = growth_of(spark, address_of(spark, files), spec, COMMIT_BY_DELTALAKE)
    assert grow is not None
    columns = describe(table(files)).fields
    grow(columns, StructType.fromJson({"type": "struct", "fields": list(columns)}).add("more", LongType()))


@pytest.mark.parametrize("by_deltalake", [batch_by_deltalake, growth_by_deltalake])
def test_in_a_local_folder_deltalake_and_delta_spark_exclude_each_other(
    spark: SparkSession, files: TableSpec, by_deltalake: Callable[[SparkSession, TableSpec], None]
) -> None:
    """delta-spark looks whether a version is there and then renames: deltalake waits while it does."""
    by_delta = spark_table(spark, files)
    by_delta.begin()
    held, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with by_delta.lock():
            held.set()
            go_on.wait()

    def commit() -> None:
        by_deltalake(spark, files)
        done.set()

    threads = [threading.Thread(target=each, daemon=True) for each in (hold, commit)]
    threads[0].start()
    held.wait()
    threads[1].start()
    lock = by_delta._log().snapshotLock()
    while not lock.hasQueuedThreads():
        assert not done.is_set()
    assert table(files).version() == 0
    go_on.set()
    for thread in threads:
        thread.join()
    assert done.is_set() and table(files).version() == 1


@contextmanager
def opened_meanwhile(by_delta: Any, files: TableSpec, overwrites: bool) -> Iterator[None]:
    """Delta-spark's lock, at whose end somebody opens the table; the commit is overwritten if `overwrites`."""
    with by_delta.lock():
        yield
        by_delta.begin()
        if overwrites and table(files).version() == 1:
            overwrite(files, 1, [{"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {}}}])


@pytest.mark.parametrize("overwrites", [False, True])
def test_columns_that_come_while_somebody_opens_the_table_are_looked_for_again(
    spark: SparkSession, files: TableSpec, overwrites: bool
) -> None:
    lock = partial(opened_meanwhile, spark_table(spark, files), files, overwrites)
    add_columns(files, StructType().add("more", LongType()), lock)
    # The second commit changes nothing where the first is still there.
    assert table(files).version() == 2
    assert [each.name for each in table(files).schema().fields].count("more") == 1


@pytest.mark.parametrize(("opened", "engine"), [(False, "delta-rs"), (True, "Apache-Spark")])
def test_what_delta_spark_has_opened_is_compacted_by_delta_spark(
    spark: SparkSession, files: TableSpec, opened: bool, engine: str
) -> None:
    """deltalake would need its lock until the last row is written, and batches would wait for it."""
    commits = TableCommits(planned(files), fail_at_gap)
    for batch in range(MIN_SMALL_FILES):
        commits.commit(QUERY, batch, written(files, 2, 2 * batch))
    if opened:
        spark_table(spark, files).begin()
    due = replace(files, compact_every=1)
    compaction = compaction_of(spark, address_of(spark, files), due, COMMIT_BY_DELTALAKE)
    assert compaction is not None
    compaction.after(MIN_SMALL_FILES - 1, MIN_SMALL_FILES)
    compaction.wait()
    newest = table(files).history(1)[0]
    assert newest["operation"] == "OPTIMIZE" and engine in str(newest)
    assert len(table(files).file_uris()) == 1 and offsets(files) == list(range(2 * MIN_SMALL_FILES))


def test_a_table_is_not_opened_for_a_lock_that_nobody_else_has(spark: SparkSession, files: TableSpec) -> None:
    by_delta = spark_table(spark, files)
    TableCommits(planned(files, DeltalakeTable(files, by_delta.lock)), fail_at_gap).commit(QUERY, 0, [])
    assert by_delta.opened_lock() is None
    by_delta.begin()
    assert by_delta.opened_lock().equals(by_delta._log().snapshotLock())


@pytest.mark.parametrize("overwrites", [False, True])
def test_a_commit_while_somebody_opens_the_table_is_looked_for_again(
    spark: SparkSession, files: TableSpec, overwrites: bool
) -> None:
    lock = partial(opened_meanwhile, spark_table(spark, files), files, overwrites)
    commits = TableCommits(planned(files, DeltalakeTable(files, lock)), fail_at_gap, sleep=lambda _: None)
    commits.commit(QUERY, 0, written(files, 5))
    assert offsets(files) == list(range(5))
    assert table(files).version() == 1 + overwrites
