"""`land` with Spark and Delta: both lanes into real tables, and what delta-spark then does with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.delta.archive import LONG, ODD, everything, landed, options
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import configured
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable
from tiered_stream.delta.landing.land import Landing, plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.errors import ConfigurationError

DAY = {"ingest.dayColumn": "day"}


VACUUM_AT_ONCE = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


class Lander:
    """Lands topics in one table of one folder, with one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, table: str = "table", topics: str = ODD) -> None:
        self.spark = spark
        self.table = folder / table
        self.checkpoint = folder / f"{table} checkpoint"
        self.topics = topics

    def start(self, lane: str = "direct", trigger: str = "availableNow", **given: str) -> StreamingQuery:
        return land(
            self.spark,
            options=options(self.topics, given),
            table=str(self.table),
            checkpoint=str(self.checkpoint),
            trigger=trigger,
            lane=lane,
        )

    def run(self, lane: str = "direct", **given: str) -> list[Any]:
        """To the end; the progress of each batch."""
        query = self.start(lane, **given)
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def read(self, version: int | None = None) -> DataFrame:
        reader = self.spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(str(self.table))

    def sql(self, statement: str) -> DataFrame:
        """The statement, `{}` standing for the table."""
        return self.spark.sql(statement.format(f"delta.`{self.table}`"))

    def committed_batches(self) -> list[int]:
        return sorted(int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*"))


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the tables' commits and before Spark's own."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name)).name
    for file in (checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()


def batches_in(table: Path) -> list[int]:
    """The batch of each commit, as the history tells it."""
    found = (entry.get("operationParameters", {}).get("epochId") for entry in DeltaTable(table).history())
    return sorted(int(each) for each in found if each is not None)


@pytest.mark.parametrize("given", [{}, DAY])
def test_tables_of_both_lanes_are_equal_row_for_row(
    spark: SparkSession, tmp_path: Path, given: Mapping[str, str]
) -> None:
    direct, by_spark = (Lander(spark, tmp_path, lane) for lane in ("direct", "spark"))
    direct.run("direct", **given)
    by_spark.run("spark", **given)
    one, other = direct.read(), by_spark.read()
    assert one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()
    assert landed(direct.table).equals(everything(ODD))
    assert one.schema == other.schema
    assert _shape(direct) == _shape(by_spark)


def _shape(lander: Lander) -> tuple[Any, ...]:
    table = DeltaTable(lander.table)
    return table.schema().to_json(), tuple(table.protocol()), table.metadata().partition_columns


def test_delta_spark_takes_the_direct_lanes_table_for_its_own(spark: SparkSession, tmp_path: Path) -> None:
    lander = Lander(spark, tmp_path, topics=LONG)
    batches = len(lander.run(maxOffsetsPerTrigger="10000", **{"ingest.tableProperty.delta.appendOnly": "false"}))
    count = everything(LONG).num_rows
    detail = lander.sql("DESCRIBE DETAIL {}").first()
    assert detail is not None
    assert (detail["format"], detail["numFiles"], detail["properties"]) == (
        "delta",
        batches,
        {"delta.appendOnly": "false"},
    )
    history = lander.sql("DESCRIBE HISTORY {}").collect()
    assert [entry["operation"] for entry in history] == ["WRITE"] * batches + ["CREATE TABLE"]
    assert sum(int(entry["operationMetrics"]["numOutputRows"]) for entry in history[:-1]) == count
    ends = [orjson.loads(entry["userMetadata"])["endOffsets"][LONG]["0"] for entry in history[:-1]]
    assert ends == sorted(ends, reverse=True)
    assert lander.read(version=1).count() == ends[-1]

    before = lander.read()
    (optimized,) = lander.sql("OPTIMIZE {}").collect()
    assert (optimized["metrics"]["numFilesRemoved"], optimized["metrics"]["numFilesAdded"]) == (batches, 1)
    with configured(spark, VACUUM_AT_ONCE):
        lander.sql("VACUUM {} RETAIN 0 HOURS")
    assert len(list(lander.table.glob("*.parquet"))) == 1
    assert before.count() == count and landed(lander.table).equals(everything(LONG))


def test_a_filter_reads_only_the_files_that_can_hold_what_it_wants(spark: SparkSession, tmp_path: Path) -> None:
    lander = Lander(spark, tmp_path, topics=LONG)
    assert len(lander.run(maxOffsetsPerTrigger="2500")) >= 7
    table = DeltaTable(lander.table)
    added = table.get_add_actions(flatten=True)
    bounds = [added[name].to_pylist() for name in ("min.offset", "max.offset", "min.timestamp", "max.timestamp")]
    by_offset, by_time = list(zip(*bounds[:2], strict=True)), list(zip(*bounds[2:], strict=True))

    def files(condition: str) -> int:
        return len(lander.read().where(condition).inputFiles())

    first, last = 6000, 7000
    assert files(f"offset BETWEEN {first} AND {last}") == _overlapping(by_offset, first, last) < 3
    assert files("offset > 10000000") == 0
    early, late = sorted(low for low, _ in by_time)[:2]
    condition = f"timestamp BETWEEN TIMESTAMP '{early.isoformat()}' AND TIMESTAMP '{late.isoformat()}'"
    assert files(condition) <= _overlapping(by_time, early, late) + 1 < len(by_time)
    assert lander.read().where(condition).count() > 0
    assert files("topic = 'another'") == files("partition = 1") == 0
    assert lander.read().where(f"offset BETWEEN {first} AND {last}").count() == last - first + 1


def _overlapping(bounds: list[tuple[Any, Any]], first: Any, last: Any) -> int:
    return sum(low <= last and high >= first for low, high in bounds)


def test_observed_figures_tell_rows_and_bytes_of_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    (progress,) = Lander(spark, tmp_path).run()
    observed = progress.observedMetrics["tiered_stream"]
    assert observed["records"] == everything(ODD).num_rows
    assert observed["remote_fetch_bytes"] > 0 and observed["broker_fetch_bytes"] == 0
    assert observed["files"] == progress.numInputRows
    assert observed["file_bytes"] > 0 and observed["peak_memory"] > 50 << 20


def test_a_table_is_opened_while_a_batch_is_written_and_between_batches_of_a_query_that_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for step in (DeltalakeTable.prepare, DeltalakeTable.begin):
        monkeypatch.setattr(DeltalakeTable, step.__name__, _noted(steps, step))
    by_deltalake = {"ingest.commit": "deltalake"}
    ending = Lander(spark, tmp_path, "ending")
    batches = len(ending.run(**by_deltalake, maxOffsetsPerTrigger="2000"))
    assert batches > 1
    made = ["begin"]
    assert steps == made + ["prepare", "begin"] * batches
    steps.clear()
    query = Lander(spark, tmp_path, "going on").start(trigger="10 milliseconds", **by_deltalake)
    query.processAllAvailable()
    query.stop()
    assert steps == [*made, "prepare", "begin", "prepare"]


def _noted(steps: list[str], step: Callable[[DeltalakeTable], Any]) -> Callable[[DeltalakeTable], Any]:
    def noted(table: DeltalakeTable) -> Any:
        steps.append(step.__name__)
        return step(table)

    return noted


def test_a_job_may_change_lanes_between_runs(spark: SparkSession, tmp_path: Path) -> None:
    """And every time the last batch is repeated in the other lane, which finds it in the table."""
    lander = Lander(spark, tmp_path)
    limit = {"maxOffsetsPerTrigger": "500"}
    for lane in ("direct", "spark", "direct"):
        enough = len(lander.committed_batches()) + 2
        query = lander.start(lane, trigger="0 seconds", **limit)
        wait_until(lambda at=enough: len(lander.committed_batches()) >= at, f"two batches of {lane}", pause=0.05)
        query.stop()
        forget_last_commit(lander.checkpoint)
    lander.run("spark", **limit)
    assert landed(lander.table).equals(everything(ODD))
    assert len(lander.committed_batches()) > 6


class DiedError(Exception):
    """The driver's end, as a test that has to be quick plays it."""


def test_a_driver_that_dies_at_any_point_of_a_batch_lands_every_record_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lander = Lander(spark, tmp_path)
    commit = TableCommits.commit

    def die(*_: Any) -> None:
        raise DiedError

    def commit_and_die(*arguments: Any) -> None:
        commit(*arguments)
        raise DiedError

    for method, death in (("is_committed", die), ("commit", die), ("commit", commit_and_die)):
        with monkeypatch.context() as patched, pytest.raises(StreamingQueryException, match="DiedError"):
            patched.setattr(TableCommits, method, death)
            lander.run(maxOffsetsPerTrigger="3000")
    assert batches_in(lander.table) == [0] and lander.committed_batches() == []
    lander.run(maxOffsetsPerTrigger="3000")
    batches = lander.committed_batches()
    assert batches_in(lander.table) == batches == list(range(len(batches))) and len(batches) > 1
    assert landed(lander.table).equals(everything(ODD))
    # Between tasks and commit: files that nobody refers to.
    assert len(list(lander.table.glob("*.parquet"))) > len(DeltaTable(lander.table).file_uris())


def planned(spark: SparkSession, table: str, lane: str = "auto", **given: str) -> Landing:
    return plan_query(spark, options=options(given=given), table=table, run=QueryRun("/not/yet"), lane=lane)


COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
GENERATED = "day DATE GENERATED ALWAYS AS (CAST(timestamp AS DATE))"


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (f"({COLUMNS}) USING delta", None),
        (f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", None),
        (f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", None),
        (f"({COLUMNS}, {GENERATED}) USING delta PARTITIONED BY (day)", "day"),
        (f"({COLUMNS}) USING delta CLUSTER BY (offset)", None),
        (f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", "column mapping"),
        (f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "delta.enableRowTracking"),
        (
            f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
            "delta.enableInCommitTimestamps",
        ),
        (f"({COLUMNS.replace('offset BIGINT', 'offset BIGINT NOT NULL')}) USING delta", None),
    ],
)
def test_the_lane_is_the_one_that_a_table_of_delta_spark_allows(
    spark: SparkSession, tmp_path: Path, definition: str, reason: str | None
) -> None:
    table = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{table}` {definition}")
    landing = planned(spark, table, **{"ingest.compactEvery": "50"})
    if reason is None:
        assert landing.lane is Lane.DIRECT and "ingest.compactEvery" not in landing.reason
        return
    assert landing.lane is Lane.SPARK and reason in landing.reason and "\n" not in landing.reason
    assert "ingest.compactEvery has no effect" in landing.reason
    with pytest.raises(ConfigurationError, match=f"{table}: .*{reason}"):
        planned(spark, table, "direct")


def test_a_table_with_a_constraint_that_spark_alone_checks_is_landed_in_by_spark_which_is_said(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lander = Lander(spark, tmp_path)
    planned(spark, str(lander.table))
    lander.sql("ALTER TABLE {} ADD CONSTRAINT odd CHECK (crc32(topic) >= 0)")
    lander.run("auto")
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(
        f"{lander.table}: the spark lane: the table has the constraint odd, which only Spark checks"
    )
    assert "crc32" in warning
    assert landed(lander.table).equals(everything(ODD))
    assert lander.sql("DESCRIBE HISTORY {}").first()["operation"] == "WRITE"  # type: ignore[index]


def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS.replace('value BINARY', 'value STRING')}) USING delta")
    with pytest.raises(ConfigurationError, match="value as string.* binary"):
        planned(spark, table)
    assert [file.name for file in (tmp_path / "table").iterdir()] == ["_delta_log"]


def test_a_table_by_name_is_made_and_landed_in(spark: SparkSession, tmp_path: Path, topic: str) -> None:
    name = topic.replace("-", "_")
    try:
        for _ in range(2):
            query = land(spark, options=options(given=DAY), table=name, checkpoint=str(tmp_path / "checkpoint"))
            query.awaitTermination()
        detail = spark.sql(f"DESCRIBE DETAIL {name}").first()
        assert detail is not None and detail["partitionColumns"] == ["day"]
        assert landed(detail["location"]).equals(everything(ODD))
        assert planned(spark, name, **DAY).lane is Lane.DIRECT
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_the_direct_lane_into_a_store_that_tasks_cannot_reach_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="viewfs://a/orders is neither a local folder nor in S3"):
        planned(spark, "viewfs://a/orders", "direct")


def test_two_jobs_share_a_table_with_an_optimize_and_a_delete(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (Lander(spark, tmp_path, "table", topic) for topic in (LONG, "s32-codecs"))
    other.checkpoint = tmp_path / "another checkpoint"
    planned(spark, str(one.table))
    queries = [one.start(maxOffsetsPerTrigger="1500"), other.start(maxOffsetsPerTrigger="300")]
    wait_until(lambda: other.committed_batches() != [], "the first batch")
    rounds = 0
    while any(query.isActive for query in queries) or rounds == 0:
        _until_committed(lambda: one.sql("DELETE FROM {} WHERE partition = 1 AND offset < 200"))
        _until_committed(lambda: one.sql("OPTIMIZE {}"))
        rounds += 1
    for query in queries:
        query.awaitTermination()
    one.sql("DELETE FROM {} WHERE partition = 1 AND offset < 200")
    expected = everything(f"{LONG},s32-codecs").to_pandas().query("partition != 1 or offset >= 200")
    found = landed(one.table).to_pandas()
    keys = ["topic", "partition", "offset"]
    assert found[keys].reset_index(drop=True).equals(expected[keys].reset_index(drop=True))
    assert len(batches_in(one.table)) == len(one.committed_batches()) + len(other.committed_batches())


def _until_committed(statement: Any) -> None:
    """Delta refuses an OPTIMIZE or a DELETE that lost against another; whoever runs them tries again."""
    for attempt in range(20):
        try:
            statement()
            return
        except Exception as error:
            if "concurrent" not in str(error).lower() or attempt == 19:
                raise


def test_a_replay_of_a_job_that_parks_tables_says_why_its_table_cannot_be_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, given = tmp_path / "table", {"ingest.onTableError": "park", **DAY}
    run = QueryRun(str(tmp_path / "checkpoint"), transaction_id="replay")
    replay = plan_query(spark, options=options(LONG, given), table=str(table), run=run)
    for day in {time.date() for time in everything(LONG)["timestamp"].to_pylist()}:
        (table / f"day={day}").write_text("no folder")
    with pytest.raises(StreamingQueryException, match="TableError: the table's folder .* cannot be written to"):
        replay.start().awaitTermination()
