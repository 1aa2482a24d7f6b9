"""Splits: by Spark's numbers, and as properties over any ranges, tiered segments and limits.

Spark's numbers are those of its `KafkaOffsetRangeCalculatorSuite`.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.golden import NAMES
from tests.locate.golden_locator import GoldenLocator, expected, read
from tests.plan.made_up_tier import MADE_UP_ID, SIGNED_URL, MadeUpTier, TieredLog
from tests.plan.planned_splits import plan_splits
from tiered_stream.errors import DataLossError
from tiered_stream.model import ByteRange, OffsetRange, SegmentLocation, Split, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.pruning import NeededSegments
from tiered_stream.plan.splits import divide, split_counts, splits_for

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
PARTITIONS = (T0, T1, T2)
MIB = 1 << 20

Tiered = dict[TopicPartition, list[TieredLog]]
Ranges = dict[TopicPartition, OffsetRange]


def ranges_of(*sizes: int, start: int = 0) -> Ranges:
    return {TopicPartition("t", number): OffsetRange(start, start + size) for number, size in enumerate(sizes)}


def sizes_of(splits: list[Split]) -> list[list[int]]:
    """By partition, how many offsets each of its splits has."""
    partitions = sorted({split.topic_partition for split in splits})
    return [[len(split.offsets) for split in splits if split.topic_partition == each] for each in partitions]


@pytest.mark.contract("1.7 minPartitions", "2.79", "2.80", "2.81", "2.82", "2.83", "2.84", "2.85", "2.86")
@pytest.mark.parametrize(
    ("sizes", "min_partitions", "parts"),
    [
        ([4, 20], None, [1, 1]),
        ([1, 1, 1], 3, [1, 1, 1]),
        ([4], 4, [4]),
        ([4, 20], 4, [1, 3]),
        ([1, 1000], 4, [1, 3]),
        ([1, 1, 1], 2, [1, 1, 1]),
        ([10, 10, 1], 6, [3, 3, 1]),
        ([10_000, 15_000, 20_000], 9, [2, 3, 4]),
        ([500, 12_000, 15_001], 6, [1, 2, 3]),
        ([1, 1, 10_000], 6, [1, 1, 4]),
        ([], 4, []),
    ],
)
def test_min_partitions_are_shared_out_as_spark_does(
    sizes: list[int], min_partitions: int | None, parts: list[int]
) -> None:
    assert split_counts(sizes, min_partitions) == parts


@pytest.mark.contract("1.7 remainder", "2.82", "2.83")
@pytest.mark.parametrize(
    ("size", "parts", "pieces"),
    [(10, 3, [3, 3, 4]), (1000, 3, [333, 333, 334]), (4, 4, [1, 1, 1, 1]), (2, 5, [1, 1]), (0, 1, []), (7, 1, [7])],
)
def test_a_range_is_divided_evenly_with_the_remainder_late(size: int, parts: int, pieces: list[int]) -> None:
    divided = divide(OffsetRange(5, 5 + size), parts)
    assert [len(piece) for piece in divided] == pieces
    assert [piece.start for piece in divided] == [5 + sum(pieces[:index]) for index in range(len(pieces))]


@pytest.mark.contract("1.7 maxRecordsPerPartition", "2.78", "2.87", "2.88")
@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "expected"),
    [
        ((1, 0, 3), None, None, [[1], [3]]),
        ((4, 20), 4, None, [[4], [6, 7, 7]]),
        ((1, 1000), 4, None, [[1], [333, 333, 334]]),
        ((10, 10, 1), 6, None, [[3, 3, 4], [3, 3, 4], [1]]),
        ((4,), None, 4, [[4]]),
        ((5,), None, 4, [[2, 3]]),
        ((39, 49, 59), None, 20, [[19, 20], [16, 16, 17], [19, 20, 20]]),
        ((39,), 1, 20, [[19, 20]]),
    ],
)
def test_splits_from_the_broker_have_sparks_sizes(
    sizes: tuple[int, ...], min_partitions: int | None, max_records: int | None, expected: list[list[int]]
) -> None:
    splits = plan_splits(
        ranges_of(*sizes, start=1),
        None,
        split_bytes=MIB,
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
    )
    assert sizes_of(splits) == expected


@pytest.mark.contract("1.7 minPartitions", "2.89")
def test_min_partitions_divide_what_max_records_has_cut_as_in_spark() -> None:
    splits = plan_splits(ranges_of(39, start=1), None, split_bytes=MIB, min_partitions=4, max_records_per_partition=20)
    assert [split.offsets.start for split in splits] == [1, 10, 20, 30]


def test_neighbours_in_one_split_have_no_byte_twice() -> None:
    class Overlapping(MadeUpTier):
        """Cuts into parts of half the size, each of which has the batch before it, too."""

        def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
            first, *others = super().cut(location, target_bytes // 2)
            return [first, *(replace(each, bytes=ByteRange(each.bytes.start - 100, each.bytes.end)) for each in others)]

    tier = Overlapping({T0: [TieredLog(0, 130), TieredLog(130, 140)]})
    splits = plan_splits({T0: OffsetRange(0, 140)}, tier, split_bytes=800)
    assert [[(each.bytes.start, each.bytes.end) for each in split.locations] for split in splits] == [
        [(0, 800)],
        [(700, 1300), (0, 100)],
    ]
    assert [split.offsets for split in splits] == [OffsetRange(0, 80), OffsetRange(80, 140)]


@pytest.mark.contract("1.7 fewest pieces")
def test_small_segments_share_a_split() -> None:
    tier = MadeUpTier({T0: [TieredLog(start, start + 10) for start in range(0, 100, 10)]})
    splits = plan_splits({T0: OffsetRange(0, 100)}, tier, split_bytes=500)
    assert [(split.offsets, len(split.locations)) for split in splits] == [
        (OffsetRange(0, 50), 5),
        (OffsetRange(50, 100), 5),
    ]


@pytest.mark.contract("1.7 fewest pieces")
def test_a_large_segment_gives_several_splits() -> None:
    tier = MadeUpTier({T0: [TieredLog(0, 100), TieredLog(100, 110)]})
    splits = plan_splits({T0: OffsetRange(5, 110)}, tier, split_bytes=300)
    assert [split.offsets.start for split in splits] == [5, 30, 60, 90]
    assert [split.storage_bytes for split in splits] == [300, 300, 300, 200]


def test_what_is_not_tiered_comes_from_the_broker() -> None:
    tier = MadeUpTier({T0: [TieredLog(10, 20), TieredLog(20, 30), TieredLog(40, 50)]})
    splits = plan_splits({T0: OffsetRange(0, 70), T1: OffsetRange(3, 4)}, tier, split_bytes=MIB)
    assert [(split.topic_partition, split.offsets, len(split.locations)) for split in splits] == [
        (T0, OffsetRange(0, 10), 0),
        (T0, OffsetRange(10, 30), 2),
        (T0, OffsetRange(30, 40), 0),
        (T0, OffsetRange(40, 50), 1),
        (T0, OffsetRange(50, 70), 0),
        (T1, OffsetRange(3, 4), 0),
    ]


def test_more_splits_than_there_are_batches_read_a_batch_more_than_once() -> None:
    tier = MadeUpTier({T0: [TieredLog(0, 10)]})
    splits = plan_splits({T0: OffsetRange(0, 10)}, tier, split_bytes=MIB, min_partitions=4)
    assert sizes_of(splits) == [[2, 2, 3, 3]]
    assert [split.storage_bytes for split in splits] == [100] * 4


def test_pieces_for_so_many_records_are_cut_from_what_was_located_once() -> None:
    class Asked(MadeUpTier):
        def __init__(self) -> None:
            super().__init__({T0: [TieredLog(0, 1000), TieredLog(1000, 2000)], T1: [TieredLog(0, 1000)]})
            self.asked: list[str] = []

        def find_locations(self, ranges, needed):  # type: ignore[no-untyped-def]
            self.asked.append("locate")
            return super().find_locations(ranges, needed)

        def cut_at(self, cuts):  # type: ignore[no-untyped-def]
            self.asked.append("cut_at")
            return super().cut_at(cuts)

    tier = Asked()
    splits = plan_splits(
        {T0: OffsetRange(5, 2100), T1: OffsetRange(0, 1000)}, tier, split_bytes=MIB, max_records_per_partition=10
    )
    assert tier.asked == ["locate", "cut_at"]
    assert len(splits) == 310
    assert all(len(split.offsets) <= 10 and split.storage_bytes <= 200 for split in splits)


def test_segments_without_a_record_that_is_new_enough_are_left_out() -> None:
    times = [5, 40, 39, -1, 41, 7, 100]
    tier = MadeUpTier({T0: [TieredLog(10 * n, 10 * n + 10, max_timestamp=at) for n, at in enumerate(times)]})
    wanted = {T0: OffsetRange(0, 75)}
    splits = plan_splits(wanted, tier, split_bytes=MIB, needed=NeededSegments(40))
    found = [(split.offsets.start, split.offsets.end, len(split.locations)) for split in splits]
    assert found == [(10, 20, 1), (30, 50, 2), (60, 70, 1), (70, 75, 0)]
    assert sizes_of(plan_splits(wanted, tier, split_bytes=MIB)) == [[70, 5]]


def test_options_and_topic_ids_reach_the_splits() -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "maxRecordsPerPartition": "2"}
    options = parse_options(given, streaming=False)
    splits = splits_for({T0: OffsetRange(0, 4), TopicPartition("u", 0): OffsetRange(0, 1)}, options, None, {"t": ID})
    assert [(split.offsets, split.topic_id) for split in splits] == [
        (OffsetRange(0, 2), ID),
        (OffsetRange(2, 4), ID),
        (OffsetRange(0, 1), None),
    ]


ID = UUID(int=9)


@pytest.mark.parametrize(
    ("topic_ids", "located"), [((ID, ID), 2), ((MADE_UP_ID, ID), 0), ((ID, MADE_UP_ID), 0), ((MADE_UP_ID,) * 2, 0)]
)
def test_segments_are_not_read_where_one_at_either_end_is_of_a_topic_of_the_same_name(
    topic_ids: Sequence[UUID], located: int
) -> None:
    tier = MadeUpTier({T0: [TieredLog(10 * n, 10 * n + 10, topic_id=each) for n, each in enumerate(topic_ids)]})
    (split,) = plan_splits({T0: OffsetRange(0, 20)}, tier, split_bytes=MIB, topic_ids={"t": ID})
    assert (split.offsets, len(split.locations)) == (OffsetRange(0, 20), located)


def test_a_split_is_small_survives_pickling_and_shows_no_signed_url() -> None:
    tier = MadeUpTier({T0: [TieredLog(start, start + 10) for start in range(0, 100, 10)]})
    (split,) = plan_splits({T0: OffsetRange(0, 100)}, tier, split_bytes=MIB)
    pickled = pickle.dumps(split)
    assert pickle.loads(pickled) == split
    assert len(pickled) < 10_000
    assert len(split.locations) == 10 and split.locations[0].signed_url == SIGNED_URL
    assert "do-not-show" not in repr(split) and "do-not-show" not in str(split)


@pytest.mark.parametrize("limits", [{}, {"min_partitions": 60}, {"max_records_per_partition": 37}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_real_segments_are_planned_by_their_indexes_alone_and_each_record_is_read_once(
    name: str, limits: dict[str, int]
) -> None:
    with closing(GoldenLocator(name)) as locator:
        ends = {partition: visible[-1].offsets.end for partition, visible in locator.visible.items()}
        ranges = {partition: OffsetRange(0, end) for partition, end in ends.items()}
        splits = plan_splits(ranges, locator, split_bytes=300_000, **limits)
        assert locator.fetcher.requests["log"] == 0 < locator.fetcher.requests["indexes"]
        assert_exactly(splits, ranges)
        assert len(splits) > len(ranges)
        for partition, end in ends.items():
            of = [location for split in splits if split.topic_partition == partition for location in split.locations]
            rows = [row for location in of for row in read(locator.fetcher, location, checked=True)]
            assert rows == expected(name, partition, 0, end, IsolationLevel.READ_COMMITTED)


@st.composite
def tiered_logs(draw: st.DrawFn) -> list[TieredLog]:
    """Up to six segments, with or without gaps between them."""
    logs = []
    start = draw(st.integers(0, 50))
    for _ in range(draw(st.integers(0, 6))):
        end = start + draw(st.integers(1, 300))
        logs.append(TieredLog(start, end, draw(st.integers(1, 40)), draw(st.integers(1, 500))))
        start = end + draw(st.sampled_from([0, 0, 1, 30]))
    return logs


tiers = st.dictionaries(st.sampled_from(PARTITIONS), tiered_logs())
offset_ranges = st.tuples(st.integers(0, 800), st.integers(0, 800)).map(lambda ends: OffsetRange(*sorted(ends)))
some_ranges = st.dictionaries(st.sampled_from(PARTITIONS), offset_ranges)


def assert_exactly(splits: list[Split], ranges: Mapping[TopicPartition, OffsetRange]) -> None:
    """Each offset of each range is in one split, and they are in order."""
    position = {partition: wanted.start for partition, wanted in ranges.items()}
    assert [split.topic_partition for split in splits] == sorted(split.topic_partition for split in splits)
    for split in splits:
        assert split.offsets.start == position[split.topic_partition]
        assert len(split.offsets)
        position[split.topic_partition] = split.offsets.end
    assert position == {partition: wanted.end for partition, wanted in ranges.items()}


def assert_located(split: Split, tier: MadeUpTier, tiered: Tiered) -> None:
    """The locations hold each offset of the split, byte for byte; a split without any has no tiered offset."""
    position = split.offsets.start
    for location in split.locations:
        assert location.offsets.start == position and len(location.offsets)
        needed = tier.log(location.segment).bytes_of(location.offsets)
        assert location.bytes.start <= needed.start and needed.end <= location.bytes.end
        position = location.offsets.end
    if split.locations:
        assert position == split.offsets.end
    else:
        logs = tiered.get(split.topic_partition, [])
        assert not any(len(split.offsets.intersect(OffsetRange(log.start, log.end))) for log in logs)


@settings(max_examples=examples(200))
@given(
    tiered=st.none() | tiers,
    ranges=some_ranges,
    split_bytes=st.integers(1, 5000),
    min_partitions=st.none() | st.integers(1, 40),
    max_records=st.none() | st.integers(1, 400),
)
def test_each_offset_is_in_exactly_one_split_that_can_be_read(
    tiered: Tiered | None, ranges: Ranges, split_bytes: int, min_partitions: int | None, max_records: int | None
) -> None:
    tier = None if tiered is None else MadeUpTier(tiered)
    splits = plan_splits(
        ranges, tier, split_bytes=split_bytes, min_partitions=min_partitions, max_records_per_partition=max_records
    )
    assert_exactly(splits, ranges)
    for split in splits:
        assert_located(split, MadeUpTier(tiered or {}), tiered or {})
        assert max_records is None or len(split.offsets) <= max_records


@settings(max_examples=examples(100))
@given(tiered=tiers, ranges=some_ranges, split_bytes=st.integers(1, 5000))
def test_without_a_limit_no_byte_is_read_twice(tiered: Tiered, ranges: Ranges, split_bytes: int) -> None:
    tier = MadeUpTier(tiered)
    splits = plan_splits(ranges, tier, split_bytes=split_bytes)
    needed = sum(len(location.bytes) for found in tier.locate(ranges).values() for location in found)
    assert sum(split.storage_bytes for split in splits) == needed


@given(st.lists(st.integers(1, 2**40), max_size=20), st.integers(1, 1000))
def test_every_range_has_a_part_and_there_are_about_as_many_as_wanted(sizes: list[int], min_partitions: int) -> None:
    parts = split_counts(sizes, min_partitions)
    assert len(parts) == len(sizes) and all(count >= 1 for count in parts)
    assert not sizes or abs(sum(parts) - max(min_partitions, len(sizes))) <= len(sizes)


def test_offsets_that_an_archive_lacks_are_data_loss_and_give_no_split() -> None:
    tier = MadeUpTier({T0: [TieredLog(0, 10), TieredLog(20, 30)]})
    given = {"subscribe": "t", "remote.log.locator": "archive", "remote.storage.uri": "file:///archive"}
    strict = parse_options(given, streaming=False)
    with pytest.raises(DataLossError, match=r"t-0: .*offsets 10 to 19\."):
        splits_for({T0: OffsetRange(0, 30)}, strict, tier, {})
    assert len(splits_for({T0: OffsetRange(20, 30)}, strict, tier, {})) == 1
    lenient = parse_options({**given, "failOnDataLoss": "false"}, streaming=False)
    splits = splits_for({T0: OffsetRange(0, 30)}, lenient, tier, {})
    assert [split.offsets for split in splits] == [OffsetRange(0, 10), OffsetRange(20, 30)]


@pytest.mark.parametrize(("given", "first"), [({}, 0), ({"remote.from.timestamp": "41"}, 10)])
def test_the_options_times_leave_out_segments_that_are_older(given: dict[str, str], first: int) -> None:
    tier = MadeUpTier({T0: [TieredLog(0, 10, max_timestamp=40), TieredLog(10, 20, max_timestamp=41)]})
    options = parse_options({"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **given}, streaming=False)
    (split,) = splits_for({T0: OffsetRange(0, 20)}, options, tier, {})
    assert split.offsets == OffsetRange(first, 20)
