"""How much of a read comes from the brokers, and why."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tests.plan.in_memory_offsets import InMemoryOffsets
from tests.plan.made_up_tier import MadeUpTier, TieredLog
from tests.plan.planned_splits import plan_splits
from tests.plan.test_tiering_delay import OF_4_4
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.read_cost import (
    NO_LOCATOR,
    NO_SEGMENT,
    NOT_TIERED_YET,
    Prices,
    ReadCost,
    broker_read_lines,
    render_cost,
    total_costs,
)
from tiered_stream.plan.splits import divide

SLOW, QUICK = TopicPartition("slow", 0), TopicPartition("quick", 0)
RANGES = {SLOW: OffsetRange(0, 200), QUICK: OffsetRange(0, 100)}
TIER = MadeUpTier({SLOW: [TieredLog(0, 50)], QUICK: [TieredLog(0, 90)]})


class Told(InMemoryOffsets):
    def topic_configs(self, topics, names):  # type: ignore[no-untyped-def]
        return {topic: {**OF_4_4, "remote.copy.lag.ms": "3600000"} for topic in topics if topic == "slow"}


def shown(source: LogSource, pieces: int = 1) -> list[str]:
    options = parse_options({"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "slow,quick"}, streaming=False)
    splits = [
        replace(split, offsets=piece)
        for split in plan_splits(RANGES, source.locator, split_bytes=1 << 20)
        if not split.locations  # how many GETs the others take, a storage would have to say
        for piece in divide(split.offsets, pieces)
    ]
    costs = total_costs(RANGES, splits, options, source)
    cost = ReadCost(partitions=costs, tasks=1, max_bytes_per_second=None, prices=Prices())
    console = Console(file=StringIO(), width=400)
    console.print(render_cost(cost, "plan"))
    assert isinstance(console.file, StringIO)
    return [line for line in console.file.getvalue().splitlines() if line.startswith("From brokers")]


def test_how_much_comes_from_brokers_is_said_with_the_settings_that_keep_it_there() -> None:
    assert shown(LogSource(Told(), TIER)) == [
        f"From brokers: 10 of 300 offsets (3.3%): {NOT_TIERED_YET}.",
        f"From brokers: 150 of 300 offsets (50.0%): {NOT_TIERED_YET}; brokers keep closed segments from the tier "
        "until they are 1 h old (remote.copy.lag.ms=3600000, remote.copy.lag.bytes=-1).",
    ]
    assert shown(LogSource(Told(), None)) == [f"From brokers: 300 of 300 offsets (100.0%): {NO_LOCATOR}."]


@pytest.mark.parametrize("pieces", [1, 3])
def test_each_reason_has_the_offsets_that_brokers_send_for_it(pieces: int) -> None:
    gap = MadeUpTier({SLOW: [TieredLog(0, 50), TieredLog(80, 190)], QUICK: [TieredLog(0, 100)]})
    assert shown(LogSource(InMemoryOffsets(), gap), pieces) == [
        f"From brokers: 30 of 300 offsets (10.0%): {NO_SEGMENT}.",
        f"From brokers: 10 of 300 offsets (3.3%): {NOT_TIERED_YET}.",
    ]


def test_nothing_is_said_where_nothing_comes_from_brokers() -> None:
    assert broker_read_lines([]) == []
