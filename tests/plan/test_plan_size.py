"""A plan that does not fit into the driver's memory is refused before its splits are cut."""

from __future__ import annotations

import pytest

from tests.locate.segments import PARTITION, segment
from tests.plan.made_up_tier import MadeUpTier, TieredLog
from tests.plan.planned_splits import plan_splits
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import ByteRange, OffsetRange, SegmentLocation, Split
from tiered_stream.plan import plan_size
from tiered_stream.plan.plan_size import MEMORY_OF_SPLIT, check_plan_fits

GIB = 1 << 30
MANY, OFFSETS = OffsetRange(0, 1 << 40), OffsetRange(0, 1000)
WHOLE = SegmentLocation(segment(1, 0, 1 << 40, size=1 << 50), MANY, ByteRange(0, 1 << 50))
SPLITS = [Split(PARTITION, MANY, (WHOLE,))]


def test_splits_that_do_not_fit_are_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    count = (1 << 50) // (128 << 20)
    monkeypatch.setattr(plan_size, "free_memory", lambda: count * MEMORY_OF_SPLIT)
    check_plan_fits(SPLITS, 128 << 20)
    monkeypatch.setattr(plan_size, "free_memory", lambda: 10 * GIB)
    with pytest.raises(ConfigurationError, match="1,048,576 GiB in 8,388,608 splits.* 64.0 GiB, and 10.0 GiB are free"):
        check_plan_fits(SPLITS, 128 << 20)


def test_memory_that_is_not_known_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_size, "free_memory", lambda: None)
    check_plan_fits(SPLITS, 128 << 20)


def test_the_memory_is_not_looked_up_for_few_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_size, "free_memory", lambda: pytest.fail("it was looked up"))
    check_plan_fits(SPLITS, 1 << 40)


def test_a_split_has_at_least_one_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_size, "free_memory", lambda: pytest.fail("it was looked up"))
    check_plan_fits([Split(PARTITION, OFFSETS, (WHOLE,))], 1)


def test_a_plan_of_too_many_splits_cuts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_size, "_MIN_CHECKED", 1)
    monkeypatch.setattr(plan_size, "free_memory", lambda: MEMORY_OF_SPLIT)
    tier = MadeUpTier({PARTITION: [TieredLog(0, 1000)]})
    assert len(plan_splits({PARTITION: OFFSETS}, tier, split_bytes=10_000)) == 1
    with pytest.raises(ConfigurationError, match=r"Read fewer topics.* remote\.split\.bytes \(1000 bytes\)"):
        plan_splits({PARTITION: OFFSETS}, tier, split_bytes=1000)


@pytest.mark.parametrize(
    ("demanded", "named"),
    [
        ({"max_records_per_partition": 1}, r"maxRecordsPerPartition=1 makes 1,099,511,627,776 .*raise the option"),
        ({"min_partitions": 200_000}, r"minPartitions=200000 asks for 200,000 splits.*lower the option"),
    ],
)
def test_options_that_demand_too_many_splits_are_refused_before_any_is_made(
    monkeypatch: pytest.MonkeyPatch, demanded: dict[str, int], named: str
) -> None:
    monkeypatch.setattr(plan_size, "free_memory", lambda: GIB)
    with pytest.raises(ConfigurationError, match=named):
        plan_splits({PARTITION: MANY}, None, split_bytes=128 << 20, **demanded)


def test_options_demand_no_more_splits_than_there_are_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_size, "free_memory", lambda: 0)
    assert len(plan_splits({PARTITION: OFFSETS}, None, split_bytes=1, min_partitions=1 << 30)) == 1000
