"""What filters leave of topics: never less than the rows that pass them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.in_memory_offsets import InMemoryOffsets, Log
from tests.plan.made_up_tier import MADE_UP_ID, MadeUpTier, TieredLog
from tests.plan.planned_splits import plan_splits
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.plan.batch import plan_batch
from tiered_stream.plan.pruning import EVERY, NeededSegments, Numbers, Pruning

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LARGE = 1 << 21
"""Bytes of a batch: ten of them are more than one request."""

points = st.integers(-12, 12)
numbers = st.one_of(
    st.lists(points).map(Numbers.of),
    st.tuples(points, points).map(lambda ends: Numbers.between(*ends)),
    points.map(lambda least: Numbers.between(first=least)),
    points.map(lambda most: Numbers.between(last=most)),
)


def held(of: Numbers) -> set[int]:
    return {number for number in range(-12, 13) if of.overlaps(number, number)}


@given(numbers, numbers, st.tuples(points, points))
def test_numbers_are_sets(left: Numbers, right: Numbers, ends: tuple[int, int]) -> None:
    least, most = sorted(ends)
    assert held(left & right) == held(left) & held(right)
    assert left.overlaps(least, most) == bool(held(left) & set(range(least, most + 1)))
    assert left & EVERY == left


def test_partitions_topics_and_offsets_cut_the_ranges() -> None:
    ranges = {T0: OffsetRange(0, 100), T1: OffsetRange(50, 60), U0: OffsetRange(5, 9)}
    assert Pruning().ranges(ranges) == ranges
    assert Pruning(topics=frozenset(["u"])).ranges(ranges) == {U0: OffsetRange(5, 9)}
    assert Pruning(partitions=Numbers.of([1, 7])).ranges(ranges) == {T1: OffsetRange(50, 60)}
    assert Pruning(offsets=Numbers.between(7, 55)).ranges(ranges) == {
        T0: OffsetRange(7, 56), T1: OffsetRange(50, 56), U0: OffsetRange(7, 9)
    }  # fmt: skip
    assert Pruning(offsets=Numbers.of([3, 70])).ranges(ranges)[T0] == OffsetRange(3, 71)
    for nothing in (Numbers(()), Numbers.between(last=-1), Numbers.between(200)):
        assert Pruning(offsets=nothing).ranges(ranges) == {}
    assert Pruning(timestamps=Numbers(())).ranges(ranges) == {}
    assert (Pruning(frozenset(["u"])) & Pruning(frozenset(["t"]))).ranges(ranges) == {}


def test_times_are_those_of_all_filters_and_options_together() -> None:
    assert Pruning().times is None
    assert Pruning(timestamps=Numbers.between(5)).within(TimeRange(3, 9)).times == TimeRange(5, 9)
    assert Pruning(timestamps=Numbers.of([4, 8])).within(None).times == TimeRange(4, 9)
    assert Pruning(timestamps=Numbers.between(last=7)).within(TimeRange(3)).times == TimeRange(3, 8)
    nothing = Pruning(timestamps=Numbers.between(9)).within(TimeRange(3, 9))
    assert (nothing.times, nothing.ranges({T0: OffsetRange(0, 1)})) == (None, {})


def test_segments_go_by_offsets_and_by_their_largest_timestamp() -> None:
    tier = MadeUpTier({T0: [TieredLog(10 * n, 10 * n + 10, max_timestamp=10 * n) for n in range(10)]})
    needed = NeededSegments(30, Numbers.of([5, 44, 45, 81]))
    splits = plan_splits({T0: OffsetRange(5, 82)}, tier, split_bytes=1, needed=needed)
    assert [split.offsets for split in splits] == [OffsetRange(40, 50), OffsetRange(80, 82)]
    assert (len(needed.needed_bytes), len(needed.skipped_bytes)) == (2, 7)


class IndexedTier(MadeUpTier):
    """Knows that nothing is new enough before an offset."""

    new_from = 25

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        return [self._since(location) for location in locations]

    def _since(self, location: SegmentLocation) -> SegmentLocation | None:
        offsets = location.offsets.intersect(OffsetRange(self.new_from, 1000))
        bytes_ = self.log(location.segment).bytes_of(offsets)
        return SegmentLocation(location.segment, offsets, bytes_) if len(offsets) else None


@pytest.mark.parametrize(
    ("new_from", "first"), [(25, OffsetRange(25, 40)), (30, OffsetRange(30, 40)), (0, OffsetRange(20, 40))]
)
def test_the_first_segment_that_is_needed_is_read_from_where_its_records_are_new_enough(
    new_from: int, first: OffsetRange
) -> None:
    tier = IndexedTier({T0: [TieredLog(10 * n, 10 * n + 10, 1, LARGE, max_timestamp=n) for n in range(4)]})
    tier.new_from = new_from
    (split,) = plan_splits(
        {T0: OffsetRange(0, 40)}, tier, split_bytes=1 << 30, needed=NeededSegments(2, look_inside=True)
    )
    assert split.offsets == first


def test_the_first_segments_of_all_partitions_are_asked_for_together() -> None:
    class Asked(IndexedTier):
        questions: ClassVar[list[int]] = []

        def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
            self.questions.append(len(locations))
            return super().since_all(locations, timestamp)

    logs = [TieredLog(10 * n, 10 * n + 10, 1, LARGE, max_timestamp=n) for n in range(4)]
    partitions = [TopicPartition("t", number) for number in range(400)]
    tier, needed = Asked(dict.fromkeys(partitions, logs)), NeededSegments(2, look_inside=True)
    splits = plan_splits(dict.fromkeys(partitions, OffsetRange(0, 40)), tier, split_bytes=1 << 30, needed=needed)
    assert Asked.questions == [400]
    assert {split.offsets for split in splits} == {OffsetRange(25, 40)} and len(splits) == 400


def test_a_small_segment_is_read_whole_rather_than_its_indexes() -> None:
    tier = IndexedTier({T0: [TieredLog(20, 30, max_timestamp=2)]})
    (split,) = plan_splits(
        {T0: OffsetRange(20, 30)}, tier, split_bytes=1 << 30, needed=NeededSegments(2, look_inside=True)
    )
    assert split.offsets == OffsetRange(20, 30)


def test_segments_are_looked_into_for_filters_alone() -> None:
    """A replay's times have become offsets before."""
    tier = IndexedTier({T0: [TieredLog(0, 40, 1, LARGE, max_timestamp=2)]})
    (split,) = plan_splits({T0: OffsetRange(0, 40)}, tier, split_bytes=1 << 30, needed=NeededSegments(2))
    assert split.offsets == OffsetRange(0, 40)


def test_the_log_says_what_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    options = parse_options({"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}, streaming=False)
    tier = MadeUpTier({T0: [TieredLog(10 * n, 10 * n + 10, max_timestamp=n) for n in range(4)]})
    offsets = InMemoryOffsets({"t": [Log(0, 40), Log(0, 7)]})
    offsets.ids["t"] = MADE_UP_ID
    source = LogSource(offsets, tier)
    pruning = Pruning(partitions=Numbers.of([0]), timestamps=Numbers.between(3))
    with caplog.at_level(logging.INFO):
        assert len(plan_batch(options, source, pruning)) == 1
    assert (
        "leave 1 of 2 partitions, and 1 of the 4 tiered segments at the wanted offsets (100 of 400 bytes)"
        in caplog.text
    )
