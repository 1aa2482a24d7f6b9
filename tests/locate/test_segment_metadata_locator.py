"""From visible segments to locations: read back, they give exactly what a consumer returned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.golden import NAMES, golden
from tests.locate.golden_locator import PLAIN, GoldenLocator, expected, read
from tests.locate.segments import PARTITION as SEGMENT_PARTITION
from tests.locate.segments import segment, segment_ends
from tests.tier.fetchers import IndexesOnly
from tiered_stream.locate.segment_metadata_locator import SegmentMetadataLocator
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.storage.fetcher import IndexType

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
TXN = TopicPartition("s32-txn", 0)
OPEN = TopicPartition("s32-open", 0)
BIG = TopicPartition("s32-big", 0)


@pytest.fixture(scope="module", params=NAMES)
def committed(request: pytest.FixtureRequest) -> Iterator[GoldenLocator]:
    with closing(GoldenLocator(request.param)) as locator:
        yield locator


@pytest.fixture
def fresh() -> Iterator[GoldenLocator]:
    with closing(GoldenLocator()) as locator:
        yield locator


def tier_end(locator: GoldenLocator, partition: TopicPartition) -> int:
    return locator.visible[partition][-1].offsets.end


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("name", NAMES)
def test_whole_partitions_read_back_as_a_consumer_returned_them(name: str, isolation: IsolationLevel) -> None:
    locator = GoldenLocator(name, isolation)
    ends = {partition: tier_end(locator, partition) for partition in locator.visible}
    located = locator.locate({partition: OffsetRange(0, end + 50) for partition, end in ends.items()})
    assert len(ends) == 11
    for partition, locations in located.items():
        rows = [row for location in locations for row in read(locator.fetcher, location)]
        assert rows == expected(name, partition, 0, ends[partition], isolation)
    locator.close()


@settings(max_examples=examples(50))
@given(data=st.data())
def test_any_range_reads_back_as_a_consumer_returned_it(data: st.DataObject, committed: GoldenLocator) -> None:
    partition = data.draw(st.sampled_from(sorted(committed.visible)))
    end = tier_end(committed, partition)
    first = data.draw(st.integers(0, end))
    last = data.draw(st.integers(first, end))
    locations = committed.locate({partition: OffsetRange(first, last)})[partition]
    rows = [row for location in locations for row in read(committed.fetcher, location)]
    assert rows == expected(committed.golden_name, partition, first, last, COMMITTED)


@settings(max_examples=examples(15))
@given(data=st.data())
def test_the_parts_of_a_cut_are_exactly_the_location(data: st.DataObject, committed: GoldenLocator) -> None:
    (big,) = (partition for partition in committed.visible if partition.topic.endswith("-big"))
    first = data.draw(st.integers(0, tier_end(committed, big) - 1))
    (location, *_) = committed.locate({big: OffsetRange(first, tier_end(committed, big))})[big]
    asked = committed.fetcher.requests["log"]
    parts = committed.cut(location, data.draw(st.sampled_from([50_000, 300_000, 1 << 20, 1 << 30])))
    assert (parts[0].offsets.start, parts[-1].offsets.end) == (location.offsets.start, location.offsets.end)
    assert (parts[0].bytes.start, parts[-1].bytes.end) == (location.bytes.start, location.bytes.end)
    assert committed.fetcher.requests["log"] == asked
    for before, after in pairwise(parts):
        assert before.offsets.end == after.offsets.start
        # An interval of the index is 4 KiB and a batch.
        assert before.bytes.start < after.bytes.start < before.bytes.end <= after.bytes.start + (32 << 10)
    rows = [row for part in parts for row in read(committed.fetcher, part)]
    assert rows == expected(committed.golden_name, big, location.offsets.start, location.offsets.end, COMMITTED)


def test_what_is_left_since_a_time_lacks_no_record_that_is_as_new(committed: GoldenLocator) -> None:
    clipped = nothing = 0
    for partition in committed.visible:
        rows = [(row[0], row[1]) for row in golden(committed.golden_name).expected(partition, "read_committed")]
        for location in committed.locate({partition: OffsetRange(0, tier_end(committed, partition))})[partition]:
            there = [(offset, timestamp) for offset, timestamp in rows if offset in location.offsets]
            newest = max((timestamp for _, timestamp in there), default=0)
            for timestamp in {newest, newest + 1, *(timestamp for _, timestamp in there[:: len(there) // 7 + 1])}:
                (rest,) = committed.since_all([location], timestamp)
                found = [row[0] for row in read(committed.fetcher, rest)] if rest else []
                assert {offset for offset, at in there if at >= timestamp} <= set(found)
                assert found == [offset for offset, _ in there if rest and offset >= rest.offsets.start]
                clipped += rest is not None and rest.offsets.start > location.offsets.start
                nothing += rest is None
    assert clipped and committed.since_all([location], 0) == [location]


@pytest.mark.parametrize(
    ("name", "look_up"),
    [
        ("since", lambda locator, some, newest: locator.since_all(some, newest)),
        ("cut", lambda locator, some, _: locator.cut_all([(each, 500_000) for each in some])),
    ],
)
def test_segments_are_looked_into_side_by_side(
    fresh: GoldenLocator, monkeypatch: pytest.MonkeyPatch, name: str, look_up: Callable[..., list[object]]
) -> None:
    locations = fresh.locate({BIG: OffsetRange(0, tier_end(fresh, BIG))})[BIG]
    newest = max(row[1] for row in golden(PLAIN).expected(BIG, "read_committed"))
    apart = [found for each in locations for found in look_up(fresh, [each], newest)]
    both, alone = Barrier(len(locations), timeout=600), getattr(fresh._positions, name)

    def waiting(*arguments: object) -> object:
        both.wait()  # for the other one to be asked for
        return alone(*arguments)

    monkeypatch.setattr(fresh._positions, name, waiting)
    assert len(locations) == 2 and look_up(fresh, locations, newest) == apart


def test_of_a_segment_that_is_not_needed_no_index_is_fetched(fresh: GoldenLocator) -> None:
    ranges = {TXN: OffsetRange(5, tier_end(fresh, TXN))}
    found = fresh.locate(ranges, lambda segment: False)[TXN]
    assert not fresh.fetcher.requests and not fresh.seams
    assert [each.offsets for each in found] == [each.offsets for each in fresh.locate(ranges)[TXN]]


def test_parts_are_about_as_large_as_wanted(fresh: GoldenLocator) -> None:
    whole = fresh.locate({BIG: fresh.visible[BIG][0].offsets})[BIG][0]
    parts = fresh.cut(whole, 500_000)
    assert len(parts) == 6
    assert all(450_000 < len(part.bytes) < 1_100_000 for part in parts)


def test_a_whole_segment_needs_no_index_where_nothing_can_be_aborted() -> None:
    locator = GoldenLocator(PLAIN, UNCOMMITTED)
    segment = locator.visible[BIG][0].segment
    (location,) = locator.locate({BIG: segment.offsets})[BIG]
    assert location.bytes == ByteRange(0, segment.size)
    assert location.aborted_transactions == ()
    assert not locator.fetcher.requests
    locator.close()


def test_a_part_of_a_segment_takes_few_bytes_more_than_it_has(fresh: GoldenLocator) -> None:
    segment = fresh.visible[BIG][0].segment
    third = len(segment.offsets) // 3
    (location,) = fresh.locate({BIG: OffsetRange(third, 2 * third)})[BIG]
    assert len(location.bytes) < segment.size / 3 * 1.1


def test_each_index_is_fetched_once(fresh: GoldenLocator) -> None:
    everything = {TXN: OffsetRange(0, tier_end(fresh, TXN))}
    fresh.locate(everything)
    first = fresh.fetcher.requests["indexes"]
    assert 0 < first <= len(fresh.visible[TXN])
    fresh.locate(everything)
    assert fresh.fetcher.requests["indexes"] == first


def test_a_transaction_that_ends_beyond_the_tier_is_asked_for_at_the_seam(fresh: GoldenLocator) -> None:
    (location,) = fresh.locate({OPEN: OffsetRange(0, tier_end(fresh, OPEN))})[OPEN]
    assert fresh.seams == [(OPEN, 250)]
    assert [(each.producer_id, each.first_offset) for each in location.aborted_transactions] == [(9001, 100)]


def test_one_by_one_parts_are_located_as_together_and_their_seams_can_be_asked_for_ahead(
    committed: GoldenLocator,
) -> None:
    everything = {partition: OffsetRange(0, tier_end(committed, partition)) for partition in committed.visible}
    committed.prefetch(committed.visible, everything)
    assert len(committed.ahead) > 1
    committed.seams.clear()
    one_by_one = {
        partition: tuple(
            committed.location(visible, at, part.offsets, committed=True) for at, part in enumerate(visible)
        )
        for partition, visible in committed.visible.items()
    }
    assert {each for each in committed.seams if each[0] in committed.ahead} == set(committed.ahead.items())
    assert one_by_one == committed.locate(everything)


def test_a_range_without_tiered_offsets_has_no_locations(fresh: GoldenLocator) -> None:
    end = tier_end(fresh, TXN)
    nowhere = TopicPartition("elsewhere", 0)
    ranges = {TXN: OffsetRange(end, end + 10), BIG: OffsetRange(5, 5), nowhere: OffsetRange(0, 10)}
    assert fresh.locate(ranges) == {TXN: (), BIG: (), nowhere: ()}


def test_segments_and_ends_inside_a_range_need_no_storage_request(fresh: GoldenLocator) -> None:
    ends = [piece.offsets.end for piece in fresh.visible[TXN]]
    ranges = {TXN: OffsetRange(ends[1], ends[4]), OPEN: OffsetRange(0, 249), BIG: OffsetRange(7, 7)}
    assert segment_ends(fresh, ranges) == {TXN: tuple(ends[2:5]), OPEN: (), BIG: ()}
    visible = fresh.visible[TXN]
    assert fresh.segments({**ranges, TXN: OffsetRange(ends[1], ends[4] - 1)}) == {
        TXN: visible[2:5], OPEN: fresh.visible[OPEN], BIG: VisibleSegments(),
    }  # fmt: skip
    assert not fresh.fetcher.requests


EARLIER, LATER = segment(1, 0, 10), segment(2, 10, 20)


class WithoutIndexes(IndexesOnly):
    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return {}


class MadeUpLocator(SegmentMetadataLocator):
    """Of one partition, whose indexes are empty; nothing is known beyond the tier."""

    name = "made up"

    def __init__(self, *visible: VisibleSegment) -> None:
        super().__init__(WithoutIndexes(), UNCOMMITTED)
        self.visible = VisibleSegments.of(visible)

    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        return {SEGMENT_PARTITION: self.visible}

    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], tuple[()]]:
        return dict.fromkeys(seams, ())

    def located(self, start: int, end: int) -> tuple[SegmentLocation, ...]:
        return self.locate({SEGMENT_PARTITION: OffsetRange(start, end)})[SEGMENT_PARTITION]


@pytest.mark.parametrize(
    ("next_base", "counts_to", "following"),
    [(10, 15, (15, 15)), (10, 12, (12, 15)), (14, 15, (15, 15)), (15, 15, None)],
    ids=["overlaps", "counts in part", "overlaps by one offset", "follows"],
)
def test_where_segments_overlap_the_first_says_between_which_offsets_its_log_must_end(
    next_base: int, counts_to: int, following: tuple[int, int] | None
) -> None:
    first, second = segment(1, 0, 15), segment(2, next_base, 30)
    visible = VisibleSegment(first, OffsetRange(0, counts_to)), VisibleSegment(second, OffsetRange(counts_to, 30))
    for end in (counts_to, 30):
        found = MadeUpLocator(*visible).located(0, end)
        assert [each.following for each in found] == [following, None][: len(found)]


def test_a_part_of_a_segment_that_was_located_whole_before_is_only_that_part() -> None:
    visible = [VisibleSegment(each, each.offsets) for each in (EARLIER, LATER)]
    locator = MadeUpLocator(*visible)
    for start, end in ((0, 20), (3, 15), (0, 9), (1, 10), (0, 20)):
        located = locator.located(start, end)
        wanted = [OffsetRange(start, min(end, 10)), OffsetRange(10, end)] if end > 10 else [OffsetRange(start, end)]
        assert [each.offsets for each in located] == wanted
