"""Real checkpoints of each of Spark's settings for them: land, go on, replay, doctor and lag, in both lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

import tiered_stream
from tests.cli.running import run
from tests.delta.archive import FIRST_MS, LONG, ODD, everything, land_in, landed, options
from tests.rigs.stack.spark import configured
from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.checkpoint.spark_checkpoint import MAX_FILE_BYTES, BatchEnds, SparkCheckpoint
from tiered_stream.delta.commit.commit_attempts import on_gap
from tiered_stream.errors import ConfigurationError, CorruptDataError, TableError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.replays.replay_checkpoint import ReplayStore
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan
from tiered_stream.replays.run_replay import ReplayReport
from tiered_stream.spark.source import register

pytestmark = [pytest.mark.stack, pytest.mark.slow]

_EVOLUTION = "spark.sql.streaming.queryEvolution"
VERSION_2 = {"spark.sql.streaming.offsetLog.formatVersion": "2"}
NAMED_SOURCES = {f"{_EVOLUTION}.enableSourceEvolution": "true"}
NAMED_SINKS = {f"{_EVOLUTION}.enableSinkEvolution": "true"}
SETTINGS = {
    "version 2": VERSION_2,
    "named sources": NAMED_SOURCES,
    "version 2, named sources and sinks": {**VERSION_2, **NAMED_SOURCES, **NAMED_SINKS},
}
LANES = pytest.mark.parametrize("lane", ["direct", "spark"])


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS)
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with configured(spark, request.param):
        yield spark


def land_some(spark: SparkSession, folder: Path, lane: str, **given: str) -> dict[str, str]:
    """Land to the end of what the settings allow; the settings, for the other commands."""
    settings = options(LONG, {**given})
    land_in(folder, spark, settings, lane)
    return {**settings, "ingest.table": f"{folder}/table", "ingest.checkpointLocation": f"{folder}/checkpoint"}


@LANES
def test_a_query_lands_goes_on_in_the_other_lane_and_is_understood_by_lag_and_doctor(
    session: SparkSession, tmp_path: Path, lane: str
) -> None:
    limits = {"maxOffsetsPerTrigger": "5000", "remote.stream.ending.offsets": f'{{"{LONG}":{{"0":9000}}}}'}
    settings = land_some(session, tmp_path, lane, **limits)
    assert landed(tmp_path / "table").equals(everything(LONG).slice(0, 9000))
    said = orjson.loads(run("lag", settings, "--json").stdout)
    (partition,) = said["partitions"]
    assert (partition["committed_offset"], said["total"]["lag_offsets"]) == (9000, 18687 - 9000)
    (finding,) = _findings(settings, "checkpoint ")
    assert finding["status"] == "ok", finding
    land_some(session, tmp_path, "spark" if lane == "direct" else "direct")
    assert landed(tmp_path / "table").equals(everything(LONG))


@LANES
def test_a_replay_ends_goes_on_and_called_again_does_nothing(session: SparkSession, tmp_path: Path, lane: str) -> None:
    times = {"from_time": str(FIRST_MS + 5_000), "to_time": str(FIRST_MS + 9_000), "name": "mend", "lane": lane}

    def replay() -> ReplayReport:
        given = options(LONG, {"maxOffsetsPerTrigger": "1500"})
        return tiered_stream.replay(session, options=given, into=str(tmp_path / "table"), **times)

    done = replay()
    assert (done.records, done.finished_before) == (4_000, False)
    assert replay().finished_before
    # As if the driver had died after Spark's last commit.
    CheckpointFolder(session, done.checkpoint).delete("finished.json")
    again = replay()
    assert (again.records, again.finished_before) == (0, False)
    assert landed(tmp_path / "table").equals(everything(LONG).slice(5_000, 4_000))


def test_files_and_many_tables_are_landed_and_gone_on_with(session: SparkSession, tmp_path: Path) -> None:
    for turn in range(2):
        land_in(tmp_path, session, options(f"{ODD},{LONG}", {"maxOffsetsPerTrigger": "9000"}), table="lake/{topic}")
        for topic in (*ODD.split(","), LONG):
            assert landed(tmp_path / "lake" / topic).equals(everything(topic)), turn
    for finished in (False, True):
        report = tiered_stream.replay(
            session, options=options(LONG), from_time="0", into=f"parquet:{tmp_path}/files", name="files",
            to_time=str(FIRST_MS + 100),
        )  # fmt: skip
        assert report.finished_before is finished
    assert session.read.parquet(f"{tmp_path}/files").count() == 100


def test_a_source_keeps_the_name_that_its_checkpoint_has(spark: SparkSession, tmp_path: Path) -> None:
    """Under another name, Spark would begin again at the first offset."""
    register(spark)
    with configured(spark, {**VERSION_2, **NAMED_SOURCES}):
        own = spark.readStream.format("tiered_stream").name("orders_eu").options(
            **options(LONG, {"remote.stream.ending.offsets": f'{{"{LONG}":{{"0":9000}}}}'})
        )  # fmt: skip
        table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
        writer = own.load().writeStream.format("delta").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(table).awaitTermination()
        land_some(spark, tmp_path, "direct")
    assert landed(tmp_path / "table").equals(everything(LONG))
    (ends,) = _last(spark, tmp_path).by_source
    assert ends == "orders_eu"


def test_a_checkpoint_of_several_sources_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("v2\n{}\na:-\nb:-")
    with (
        configured(spark, NAMED_SOURCES),
        pytest.raises(ConfigurationError, match="sources a, b"),
    ):
        land_some(spark, tmp_path, "direct")


def test_the_settings_change_what_spark_writes(session: SparkSession, tmp_path: Path) -> None:
    """So that the tests here are of what they say."""
    land_some(session, tmp_path, "direct")
    version_2 = session.conf.get("spark.sql.streaming.offsetLog.formatVersion") == "2"
    named = session.conf.get(f"{_EVOLUTION}.enableSourceEvolution") == "true"
    ends = _last(session, tmp_path)
    assert ends.has_ids is version_2
    assert list(ends.by_source) == ["tiered_stream" if named and version_2 else "0"]


def test_a_file_beyond_the_bound_is_refused_by_sparks_file_systems_as_well(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with (tmp_path / "offsets" / "7").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    (tmp_path / "offsets" / "8").write_bytes(b"v1\n{}\n-")
    checkpoint = SparkCheckpoint(CheckpointFolder(spark, str(tmp_path)))
    assert checkpoint.last_planned() == 8 and checkpoint.ends(9) is None
    found = checkpoint.ends(8)
    assert found is not None and found.by_source == {"0": None}
    with pytest.raises(CorruptDataError, match="offsets/7: .*64 MiB"):
        checkpoint.ends(7)


@pytest.mark.parametrize(
    ("text", "said"), [("v3\n{}\n{}", "keep the checkpoint"), ("v2\n{}\n{}", "restore the file from a backup")]
)
def test_doctor_and_lag_say_what_is_wrong_with_a_file_and_not_to_begin_again(
    tmp_path: Path, text: str, said: str
) -> None:
    for log in ("offsets", "commits"):
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        (tmp_path / "checkpoint" / log / "4").write_text(text)
    tables = {"ingest.table": f"{tmp_path}/table", "ingest.checkpointLocation": f"{tmp_path}/checkpoint"}
    (finding,) = _findings(options(LONG, tables), "checkpoint ")
    assert finding["status"] == "failed" and "offsets/4: it" in finding["found"]
    assert said in finding["fix"] and "lands everything again" in finding["fix"]
    assert "offsets/4: it" in run("lag", options(LONG, tables)).output.replace("\n", "")


def test_a_replay_whose_last_offsets_are_damaged_says_so_at_every_call(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    for log in ("offsets", "commits"):
        (tmp_path / log / "0").write_bytes(b"v1\n{}\n{")
    plan = ReplayPlan(
        "mend", ReplayArguments(("subscribe", LONG), "0", None, "table t"), TimeRange(0),
        {TopicPartition(LONG, 0): OffsetRange(0, 9)}, {},
    )  # fmt: skip
    store = ReplayStore(spark, str(tmp_path))
    for _ in range(2):
        with pytest.raises(CorruptDataError, match="offsets/0: "):
            store.reached(plan)


def test_a_lost_commits_error_has_the_offsets_of_version_2(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for batch, line in enumerate(('0:{"t":{"0":5}}', 'a:{"t":{"0":9}}', "no source")):
        (tmp_path / "offsets" / str(batch)).write_text(f"v2\n{{}}\n{line}")
    said = on_gap(spark, str(tmp_path), "t", fail=True)
    with pytest.raises(TableError, match=re.escape('from {"t":{"0":5}} to {"t":{"0":9}}.')):
        said(0, 1)
    with pytest.raises(TableError, match=r"batch 2 \(.*offsets/2: "):
        said(0, 2)
    with pytest.raises(TableError, match=r"batch 3\."):
        said(0, 3)


def _last(spark: SparkSession, folder: Path) -> BatchEnds:
    checkpoint = SparkCheckpoint(CheckpointFolder(spark, str(folder / "checkpoint")))
    batch = checkpoint.last_committed()
    assert batch is not None
    found = checkpoint.ends(batch)
    assert found is not None
    return found


def _findings(settings: Mapping[str, str], check: str) -> list[dict[str, Any]]:
    found = orjson.loads(run("doctor", settings, "--json").stdout)["findings"]
    return [each for each in found if each["check"].startswith(check)]
