"""Replays of a golden archive into real Delta tables: both lanes, stopped and gone on with, mended, refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tiered_stream
from tests.delta.archive import LONG, ODD, everything, landed, options
from tests.rigs.stack.processes import wait_until
from tiered_stream.errors import ConfigurationError, DataLossError, ReplayStoppedError, TableError, UnknownTopicError
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.replays.replay_plan import ReplayPlan
from tiered_stream.replays.run_replay import Replay, ReplayReport, plan_replay
from tiered_stream.replays.table_and_folder_targets import DeltaTarget, replace_where

pytestmark = pytest.mark.stack

FIRST_MS = 1_700_000_000_000
"""Of `LONG`, whose records are a millisecond apart."""
RECORDS = 18_687
FROM, TO = 5_000, 9_000
"""Offsets of it, and milliseconds since its first."""


class Replayer:
    """Replays a part of `LONG` into one table."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.table = folder / "table"

    def plan(self, lane: str = "direct", now_ms: int | None = None, **given: Any) -> Replay:
        settings = options(LONG, given.pop("options", {}))
        times = {"from_time": str(FIRST_MS + FROM), "to_time": str(FIRST_MS + TO)}
        target = DeltaTarget(self.spark, str(self.table), settings, lane, tasks=given.pop("tasks", None))
        return plan_replay(target, now_ms=now_ms, **{**times, **given})

    def run(self, lane: str = "direct", **given: Any) -> ReplayReport:
        return self.plan(lane, **given).run()

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(f"delta.`{self.table}`")).collect()

    def version(self) -> int:
        return DeltaTable(self.table).version()

    def rows(self) -> pa.Table:
        return landed(self.table)


def between(first: int, end: int) -> pa.Table:
    return everything(LONG).slice(first, end - first)


@pytest.fixture
def replayer(spark: SparkSession, tmp_path: Path) -> Replayer:
    return Replayer(spark, tmp_path)


LANES = pytest.mark.parametrize("lane", ["direct", "spark"])


@LANES
def test_a_replay_lands_what_lies_between_its_times_once_however_often_it_is_run(replayer: Replayer, lane: str) -> None:
    report = replayer.run(lane, options={"maxOffsetsPerTrigger": "1500"})
    assert (report.records, report.finished_before) == (TO - FROM, False)
    assert replayer.rows().equals(between(FROM, TO))
    version = replayer.version()
    again = replayer.run(lane)
    assert (again.records, again.finished_before, again.plan) == (0, True, report.plan)
    assert replayer.version() == version >= 3
    assert report.checkpoint == f"{replayer.table}/_checkpoints/replay-{report.plan.name}"


def stop_after(batches: int, checkpoint: Path) -> Callable[[StreamingQuery, ReplayPlan, MetricsReceiver], None]:
    """A follower that stops its query when so many micro-batches are committed."""

    def follow(query: StreamingQuery, plan: ReplayPlan, receiver: MetricsReceiver) -> None:
        wait_until(lambda: len(list((checkpoint / "commits").glob("[0-9]*"))) >= batches, "micro-batches", pause=0.02)
        query.stop()

    return follow


@LANES
def test_a_replay_that_was_stopped_goes_on_with_the_offsets_it_began_with(replayer: Replayer, lane: str) -> None:
    """Though its times are back from now, and now is another; in either lane; and after a crash within a commit."""
    now_ms = FIRST_MS + 3_600_000
    times = {"from_time": "-3595s", "to_time": "-3591s", "name": "mend", "options": {"maxOffsetsPerTrigger": "400"}}
    checkpoint = replayer.table / "_checkpoints" / "replay-mend"
    with pytest.raises(ReplayStoppedError, match="start it again"):
        replayer.plan(lane, now_ms, **times).run(stop_after(2, checkpoint))
    assert 0 < replayer.rows().num_rows < TO - FROM
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()  # as if the driver had died between the table's commit and Spark's
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    later = replayer.plan("spark" if lane == "direct" else "direct", now_ms + 1_800_000, **times)
    assert later.plan.times.from_ms == FIRST_MS + FROM
    assert not later.run().finished_before
    assert replayer.rows().equals(between(FROM, TO))
    assert (replayer.plan(lane, now_ms, **times).run()).finished_before


def test_a_name_is_one_replays(replayer: Replayer) -> None:
    replayer.run(name="mend")
    with pytest.raises(ConfigurationError, match=f"to .*{FIRST_MS + TO} "):
        replayer.plan(name="mend", to_time=None)
    with pytest.raises(ConfigurationError, match="replay mend"):
        replayer.plan(name="other", checkpoint=f"{replayer.table}/_checkpoints/replay-mend")


def test_a_replay_whose_checkpoint_is_gone_does_not_come_twice(replayer: Replayer, tmp_path: Path) -> None:
    checkpoint = Path(replayer.run(name="mend").checkpoint)
    checkpoint.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="mend.*checkpoint"):
        replayer.plan(name="mend")
    assert replayer.rows().equals(between(FROM, TO))
    assert replayer.run(name="mend", checkpoint=str(tmp_path / "elsewhere")).finished_before


@pytest.mark.parametrize("exact", [False, True])
def test_a_day_that_a_table_has_twice_and_with_holes_is_mended_in_one_commit(replayer: Replayer, exact: bool) -> None:
    before, after = between(FROM - 700, FROM), between(TO, TO + 700)
    wider = {"from_time": str(FIRST_MS + FROM - 700), "to_time": str(FIRST_MS + TO + 700)}
    replayer.run(name="first", **wider)
    replayer.run(name="doubled")
    replayer.sql(f"DELETE FROM {{}} WHERE offset BETWEEN {FROM + 100} AND {FROM + 250} OR offset = {TO - 1}")
    replayer.sql(f"UPDATE {{}} SET value = X'00' WHERE offset = {FROM}")
    version = replayer.version()
    report = replayer.run("auto", name="mended", replace=True, exact=exact, options={"maxOffsetsPerTrigger": "10"})
    assert replayer.version() == version + 1
    whole = pa.concat_tables([before, between(FROM, TO), after]).combine_chunks()
    assert replayer.rows().equals(whole)
    assert report.records == TO - FROM
    assert replayer.run("auto", name="mended", replace=True, exact=exact).finished_before
    assert replayer.version() == version + 1


def test_a_replacement_that_died_before_sparks_commit_is_not_done_again(replayer: Replayer) -> None:
    replayer.run(name="first")
    report = replayer.run("auto", name="mended", replace=True)
    for file in (*Path(report.checkpoint).glob("commits/*0*"), *Path(report.checkpoint).glob("*finished*")):
        file.unlink()
    version = replayer.version()
    again = replayer.run("auto", name="mended", replace=True)
    assert not again.finished_before and replayer.version() == version
    assert replayer.rows().equals(between(FROM, TO))


def test_replacing_touches_no_other_partition_and_no_other_time(spark: SparkSession, replayer: Replayer) -> None:
    plan = replayer.plan(exact=True).plan
    columns = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    at = f"timestamp_millis({plan.times.from_ms})"
    rows = f"""SELECT topic, partition, offset, {at} + make_dt_interval(0, 0, 0, after) timestamp
        FROM VALUES ('{LONG}', 0, {FROM}L, 0), ('{LONG}', 0, {FROM}L, -1), ('{LONG}', 0, {FROM}L, 4),
        ('{LONG}', 0, {FROM - 1}L, 0), ('{LONG}', 0, {RECORDS}L, 0), ('{LONG}', 1, {FROM}L, 0), ('x', 0, {FROM}L, 0)
        AS t(topic, partition, offset, after)"""
    assert spark.sql(rows).to(spark.createDataFrame([], columns).schema).where(replace_where(plan)).count() == 1
    all_times = replace(plan, arguments=replace(plan.arguments, exact=False))
    assert spark.sql(rows).where(replace_where(all_times)).count() == 3


@LANES
@pytest.mark.parametrize("tasks", [1, 2])
def test_tasks_at_once_are_limited(replayer: Replayer, lane: str, tasks: int) -> None:
    report = replayer.run(lane, tasks=tasks, from_time="0", to_time=None, options={"remote.split.bytes": "64k"})
    assert replayer.rows().equals(everything(LONG))
    files = len(DeltaTable(replayer.table).file_uris())
    assert report.records == RECORDS and files <= tasks


@pytest.mark.parametrize("topics", [LONG, ODD])
@pytest.mark.parametrize("limit", [None, "2000"])
def test_a_dry_run_says_what_the_run_then_takes(spark: SparkSession, tmp_path: Path, topics: str, limit: str) -> None:
    given = options(topics, {"maxOffsetsPerTrigger": limit} if limit else {})
    table = tmp_path / "table"
    planned = plan_replay(DeltaTarget(spark, str(table), given), from_time="0")
    figures = planned.estimate()
    assert not table.exists()
    metrics = planned.run().metrics
    assert figures.total("storage_bytes") == pytest.approx(metrics.remote_fetch_bytes, rel=0.02)
    assert figures.total("gets") == pytest.approx(metrics.remote_fetch_requests, rel=0.02)
    assert figures.total("offsets") >= metrics.records > 0 and figures.total("broker_offsets") == 0


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "to before from": ({"to_time": str(FIRST_MS)}, ConfigurationError, "is not after --from"),
    "a name that is none": ({"name": "a/b"}, ConfigurationError, "--name"),
    "no topic": ({"options": {"subscribe": "absent"}}, UnknownTopicError, "absent"),
    "a pattern of none": (
        {"options": {"subscribe": None, "subscribePattern": "absent"}},
        ConfigurationError,
        "no topic matches the pattern 'absent'",
    ),
    "no partition": (
        {"options": {"subscribe": None, "assign": f'{{"{LONG}":[0,7]}}'}},
        UnknownTopicError,
        f"the partitions {LONG}-7 do not exist",
    ),
    "two ways to say what": ({"options": {"subscribePattern": "x"}}, ConfigurationError, "subscribePattern are given"),
    "an unknown setting": ({"options": {"ingest.dayColum": "day"}}, ConfigurationError, "ingest.dayColumn"),
    "an archive that ends early": (
        {"to_time": "2024-01-01T00:00:00Z"},
        DataLossError,
        rf"the archive ends before 2024-01-01T00:00:00Z: it has no record as new in {LONG}-0 \(offset {RECORDS}\)",
    ),
    "to replace in the direct lane": ({"replace": True}, ConfigurationError, "the direct lane only appends"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_and_nothing_is_written(replayer: Replayer, case: str) -> None:
    given, error, said = REFUSED[case]
    settings = {name: value for name, value in given.get("options", {}).items() if value is not None}
    removed = {name for name, value in given.get("options", {}).items() if value is None}
    base = {name: value for name, value in options(LONG, settings).items() if name not in removed}
    times = {"from_time": str(FIRST_MS + FROM), "to_time": str(FIRST_MS + TO)}
    arguments = {**times, **{name: value for name, value in given.items() if name != "options"}}
    target = DeltaTarget(replayer.spark, str(replayer.table), base, "direct")
    with pytest.raises(error, match=said):
        plan_replay(target, **arguments).run()
    assert not replayer.table.exists()


def test_an_archive_that_ends_early_is_replayed_where_loss_is_allowed(replayer: Replayer) -> None:
    report = replayer.run(to_time="2024-01-01T00:00:00Z", options={"failOnDataLoss": "false"})
    assert report.records == RECORDS - FROM


@pytest.mark.parametrize("lane", ["auto", "spark"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE {} RENAME COLUMN value TO payload", "has no column value"),
        ("ALTER TABLE {} DROP COLUMN headers", "has no column headers"),
        ("ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", "is append-only"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(
    replayer: Replayer, lane: str, change: str, said: str
) -> None:
    replayer.run("auto", name="first", options={"ingest.tableProperty.delta.columnMapping.mode": "name"})
    replayer.sql(change)
    version, files = replayer.version(), sorted(replayer.table.rglob("*"))
    with pytest.raises(ConfigurationError, match=said):
        replayer.run(lane, name="second", replace="append" in said)
    assert (replayer.version(), sorted(replayer.table.rglob("*"))) == (version, files)


def test_a_damaged_plan_and_a_checkpoint_out_of_reach_are_said(replayer: Replayer, tmp_path: Path) -> None:
    plan = Path(replayer.run(name="mend").checkpoint) / "replay.json"
    plan.write_text("{}")
    (plan.parent / ".replay.json.crc").unlink(missing_ok=True)
    with pytest.raises(tiered_stream.errors.CorruptDataError, match=r"replay-mend/replay\.json: "):
        replayer.plan(name="mend")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TableError, match=f"checkpoint .*{tmp_path}/file/checkpoint"):
        replayer.run(name="other", checkpoint=f"{tmp_path}/file/checkpoint")


def test_a_table_by_name_and_by_day_is_replayed_into(spark: SparkSession, tmp_path: Path) -> None:
    """The table is made; a second replay finds it, and its checkpoint in its folder."""
    given = options(LONG, {"ingest.dayColumn": "day"})
    for lane in ("direct", "spark"):
        arguments = {
            "from_time": str(FIRST_MS),
            "to_time": str(FIRST_MS + 10),
            "into": "replayed_by_name",
            "lane": lane,
        }
        for finished in (False, True):
            report = tiered_stream.replay(spark, options=given, name=lane, **arguments)
            assert report.finished_before is finished
    days = spark.table("replayed_by_name").groupBy("day").count().collect()
    assert [(str(row["day"]), row["count"]) for row in days] == [("2023-11-14", 20)]
    assert pc.all(pc.equal(landed(report.checkpoint.split("/_checkpoints")[0])["partition"], 0)).as_py()
    spark.sql("DROP TABLE replayed_by_name")
