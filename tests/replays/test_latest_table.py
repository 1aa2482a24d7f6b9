"""Replays into tables of the latest state: they leave the latest state, or are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta.test_latest_state import PLAIN, Latest
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options
from tiered_stream.delta.commit.table_log import LandedOffsets
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan
from tiered_stream.replays.run_replay import Replay, plan_replay
from tiered_stream.replays.table_and_folder_targets import overtaken, target_of, why_not_latest

EPOCH = 1_700_000_000_000
ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def planned(first: int, end: int, *, to: int | None = None, exact: bool = False) -> ReplayPlan:
    arguments = ReplayArguments(("subscribe", "orders"), "0", None if to is None else str(to), "table /t", exact)
    return ReplayPlan("again", arguments, TimeRange(0, to), {ONE: OffsetRange(first, end)}, {})


def landed(partition: TopicPartition | None = None, end: int = 0, *, complete: bool = True) -> LandedOffsets:
    return LandedOffsets({partition: OffsetRange(0, end)} if partition else {}, complete)


ORDERED, WITH_ROWS = {"ordered": True}, {"has_rows": True}


@pytest.mark.parametrize(
    ("plan", "landed", "given", "said"),
    [
        (planned(5, 20), landed(ONE, 20), {}, None),
        (planned(5, 9, to=1), landed(), {}, None),
        (planned(5, 9, to=1), landed(ONE, 9), {}, None),
        (planned(5, 9, to=1), landed(ONE, 10), {}, "ends at offset 9 of orders-0.*--to out"),
        (planned(5, 9), landed(ONE, 10), {}, "Replay from a log that has these records"),
        (planned(9, 9, to=1), landed(ONE, 10), {}, None),
        (planned(9, 9, to=1), landed(ONE, 10), ORDERED, "--to out"),  # a key may be in several partitions
        (planned(5, 9, to=1), landed(TWO, 10), {}, None),
        (planned(5, 9, to=1), landed(TWO, 10, complete=False), {}, "its commits do not say.*--to out"),
        (planned(5, 9), landed(TWO, 10, complete=False), {}, None),
        (planned(0, 9, to=1), landed(), WITH_ROWS, "Leave --to out"),  # of an unknown writer
        (planned(0, 9), landed(), WITH_ROWS, None),
        (planned(5, 20, exact=True), landed(ONE, 20), {}, "Leave --exact out"),
        (planned(5, 20, exact=True), landed(), {}, None),
    ],
)
def test_a_replay_must_read_as_far_as_the_table_has_records(
    plan: ReplayPlan, landed: LandedOffsets, given: dict[str, bool], said: str | None
) -> None:
    reason = why_not_latest(plan, landed, **{"has_rows": bool(landed.ranges), "ordered": False, **given})
    assert reason is None if said is None else re.search(said, reason or "")


def test_a_table_with_later_records_than_the_replay_is_overtaken() -> None:
    assert overtaken(planned(0, 9), {ONE: OffsetRange(0, 9), TWO: OffsetRange(0, 99)}) is None
    assert "offset 9 of orders-0" in (overtaken(planned(0, 9), {ONE: OffsetRange(0, 10)}) or "")
    assert overtaken(planned(9, 9), {ONE: OffsetRange(0, 10)}) is None


class Replayed(Latest):
    """Table into which a part of the topic is replayed; the record at offset N has the timestamp N s after `EPOCH`."""

    def add(self, *records: tuple[bytes, bytes | None]) -> None:
        first = self._ends.get(0, 0)
        self.write(0, *(Record(key, value, (), EPOCH + 1000 * (first + at)) for at, (key, value) in enumerate(records)))

    def plan(self, first: int, end: int | None = None, into: str = "", **given: Any) -> Replay:
        options = topic_options(self.bucket, "orders", {"ingest.mode": "upsert", **PLAIN, **given.pop("options", {})})
        times = {"from_time": str(EPOCH + 1000 * first), "to_time": None if end is None else str(EPOCH + 1000 * end)}
        target = target_of(self.spark, into or str(self.table), options)
        return plan_replay(target, **times, **given)  # type: ignore[arg-type]


@pytest.fixture
def replayed(spark: SparkSession, tmp_path: Path) -> Replayed:
    """Table with the records up to offset 6, in which a row was lost and a row is wrong."""
    table = Replayed(spark, tmp_path)
    table.add((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    table.run(PLAIN)
    table.add((b"b", b"2"), (b"c", None), (b"d", b"2"))
    table.run(PLAIN)
    spark.sql(f"DELETE FROM delta.`{table.table}` WHERE key = 'b'")
    spark.sql(f"UPDATE delta.`{table.table}` SET value = 'wrong' WHERE key = 'd'")
    return table


RIGHT = [("a", "1"), ("b", "2"), ("d", "2")]


@pytest.mark.slow
def test_a_replay_up_to_the_newest_record_leaves_the_latest_state(replayed: Replayed) -> None:
    replay = replayed.plan(1, options={"maxOffsetsPerTrigger": "2"})
    assert not replay.verify().equal
    report = replay.run()
    assert (report.records, report.finished_before) == (6, False)
    assert replayed.rows("key", "value") == RIGHT
    assert replay.verify().equal
    assert replayed.plan(1, options={"maxOffsetsPerTrigger": "2"}).run().finished_before


@pytest.mark.slow
def test_a_replay_of_a_part_over_newer_rows_is_refused(replayed: Replayed) -> None:
    with pytest.raises(ConfigurationError, match="offset 5 of orders-0.*offset 6.*--to "):
        replayed.plan(1, 5)
    with pytest.raises(ConfigurationError, match="--exact "):
        replayed.plan(1, exact=True)
    with pytest.raises(ConfigurationError, match=r"--replace .*ingest\.mode=upsert"):
        replayed.plan(1, replace=True)
    assert len(replayed.history()) == 5


@pytest.mark.slow
def test_a_part_into_a_new_table_is_the_latest_state_of_the_part(replayed: Replayed, tmp_path: Path) -> None:
    replayed.table = tmp_path / "part"
    replay = replayed.plan(1, 5)
    replay.run()
    assert replayed.rows("key", "value") == [("b", "2"), ("c", "1"), ("d", "1")]
    report = replay.verify()
    assert report.equal, report.summary()
    # The table can take what came later.
    later = replayed.plan(5)
    later.run()
    assert replayed.rows("key", "value") == [("b", "2"), ("d", "2")]
    assert later.verify().equal


@pytest.mark.slow
def test_a_query_that_lands_later_records_meanwhile_is_noticed(replayed: Replayed) -> None:
    replay = replayed.plan(1)
    replayed.add((b"a", None))
    replayed.run(PLAIN)
    with pytest.raises(TableError, match="offset 7 of orders-0.*query"):
        replay.run()
    again = replayed.plan(1, name="again")
    again.run()
    assert replayed.rows("key", "value") == RIGHT[1:]
    assert again.verify().equal


@pytest.mark.slow
def test_a_replay_that_goes_on_after_another_query_has_landed_is_refused(replayed: Replayed) -> None:
    replay = replayed.plan(1)
    replay._begin()
    replayed.add((b"d", b"3"))
    replayed.run(PLAIN)
    resumed = replayed.plan(1)
    assert resumed.store is not None
    with pytest.raises(TableError, match="other query.* --name"):
        resumed.run()
    assert ("d", "3") in replayed.rows("key", "value")


@pytest.mark.slow
def test_a_replay_reads_beyond_the_offsets_of_the_jobs_checkpoint(replayed: Replayed) -> None:
    replayed.add((b"e", b"1"))
    replay = replayed.plan(1, query_checkpoint=str(replayed.checkpoint))
    assert replay.plan.ranges == {ONE: OffsetRange(1, 8)}
    replay.run()
    replayed.run(PLAIN)
    assert replayed.rows("key", "value") == [*RIGHT, ("e", "1")]


@pytest.mark.slow
def test_records_go_into_files_whatever_the_mode_of_the_jobs_table(replayed: Replayed, tmp_path: Path) -> None:
    replayed.plan(1, 4, f"parquet:{tmp_path / 'files'}").run()
    assert replayed.spark.read.parquet(str(tmp_path / "files")).count() == 3
