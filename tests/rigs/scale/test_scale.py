"""The rig of `make scale`: its topics are what the planner's classes would read, and goals are compared."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rigs.scale import made_up_topics
from tests.rigs.scale.__main__ import PARTS, Part, measure, report
from tests.rigs.scale.made_up_topics import OFFSETS, MadeUpLocator, MadeUpLog, Topics
from tests.rigs.scale.measured import Meter, Step
from tests.rigs.scale.segments import Planner
from tiered_stream.broker.record_fetch import FetchedRecords
from tiered_stream.model import OffsetRange, TopicPartition

TINY = 0.0002


@pytest.mark.parametrize("part", {part.module: part for part in PARTS}.values(), ids=lambda part: part.module)
def test_each_part_measures_every_step(tmp_path: Path, part: Part) -> None:
    small = replace(part, arguments=[4 if each in (100, 10_000) else each for each in part.arguments])
    steps = measure(small, TINY, tmp_path)
    assert steps and all(step.seconds >= 0 for step in steps)
    assert len(report(steps).splitlines()) == 2 + len(steps)


def test_the_locator_finds_all_segments_and_new_ones_and_no_foreign_one() -> None:
    topics, meter = Topics(2, 3, 40, foreign=5000), Meter("test")
    locator = MadeUpLocator(topics, meter)
    everything = {each.topic_partition: OffsetRange(0, 10**9) for each in topics.every_partition}
    found = locator.segments(everything)
    assert sum(map(len, found.values())) == topics.all_segments == 240
    first = topics.every_partition[0]
    assert [part.offsets for part in found[first.topic_partition]][-1] == OffsetRange(39 * OFFSETS, 40 * OFFSETS)
    locator.log.add_segment(first, 40)
    assert len(locator.segments(everything)[first.topic_partition]) == 41
    locator.close()


def test_a_restart_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(1, 2, 1000, foreign=100)
    fetched: list[int] = []

    class Counted(MadeUpLog):
        def _fetch_once(self, log_partition: TopicPartition, offset: int, max_bytes: int) -> FetchedRecords:
            fetched.append(max_bytes)
            return super()._fetch_once(log_partition, offset, max_bytes)

    monkeypatch.setattr(made_up_topics, "MadeUpLog", Counted)
    assert Planner(topics, Meter("test"), {}, tmp_path).plan({})[1] and set(fetched) != {1}
    fetched.clear()
    assert Planner(topics, Meter("test"), {}, tmp_path).plan({})[1]
    assert set(fetched) == {1}, "only the last batch of each snapshot"


def test_the_time_of_stand_ins_is_left_out_and_a_missed_goal_is_marked() -> None:
    meter = Meter("test")

    def work() -> bytes:
        with meter.outside():
            ends = time.thread_time() + 0.1
            while time.thread_time() < ends:
                pass
        return b"1" * (64 << 20)

    began = time.process_time()
    held = meter.step("a step", work, (len(b"row"), "row"), (1e9, 1.0))
    (step,) = meter.steps
    assert step.seconds <= time.process_time() - began - 0.1
    assert step.held * (1 << 20) > len(held) / 2 and step.missed
    assert "✗ (at most 1)" in report(meter.steps)
    assert not Step("test", "no goal", 1, 1, 1).missed
