from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.locate.golden_locator import GoldenLocator
from tests.plan.in_memory_offsets import InMemoryOffsets, Log
from tests.plan.made_up_tier import MadeUpTier, TieredLog
from tiered_stream.model import ASSUMED_RECORD_BYTES, OffsetRange, TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.batch_limits import Backlog, _EndInside, _Spans, ends_by_bytes
from tiered_stream.plan.stream import StreamPlanner

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HUNDREDS = [TieredLog(0, 100), TieredLog(100, 200), TieredLog(200, 300)]
"""Segments of 1,000 bytes, in batches of 10 offsets and 100 bytes."""


def ends(limit: int, start: int = 0, latest: int = 300, logs: list[TieredLog] = HUNDREDS) -> int:
    return ends_by_bytes(Backlog({T0: start}, {T0: latest}, MadeUpTier({T0: logs})), limit)[T0]


@pytest.mark.parametrize(
    ("limit", "start", "end"),
    [
        (1000, 0, 100),
        (2500, 0, 200),
        (2999, 0, 200),
        (3000, 0, 300),
        (1500, 50, 200),
        (1499, 50, 100),
        (499, 50, 90),
        (300, 0, 30),
        (1, 0, 10),
        (1, 295, 300),
    ],
    ids=[
        "one segment is the limit",
        "what is left is no whole segment",
        "nor is this",
        "everything",
        "what is left of a segment and the next",
        "what is left of a segment",
        "inside of a segment, at a batch",
        "the same from its start",
        "one record batch at least",
        "also the last",
    ],
)
def test_a_batch_ends_with_the_last_segment_that_fits_or_inside_of_the_first(limit: int, start: int, end: int) -> None:
    assert ends(limit, start) == end


def test_what_is_not_tiered_is_as_dense_as_the_segments() -> None:
    assert ends(1500, start=300, latest=1000) == 450
    assert ends(3500, latest=1000) == 300
    assert ends_by_bytes(Backlog({T0: 0}, {T0: 100}, MadeUpTier({})), 10 * ASSUMED_RECORD_BYTES) == {T0: 10}
    assert ends_by_bytes(Backlog({T0: 0}, {T0: 100}, None), 1) == {T0: 1}


def test_a_gap_before_a_segment_counts_too() -> None:
    assert ends(1400, logs=[TieredLog(50, 100), TieredLog(200, 300)], latest=300) == 100
    assert ends(300, logs=[TieredLog(50, 100), TieredLog(200, 300)], latest=300) == 30


def test_partitions_share_the_bytes_in_proportion() -> None:
    tier = MadeUpTier({T0: HUNDREDS, T1: [TieredLog(0, 100)]})
    assert ends_by_bytes(Backlog({T0: 0, T1: 0}, {T0: 300, T1: 100}, tier), 2000) == {T0: 100, T1: 50}


def test_partitions_with_nothing_to_read_or_without_a_start_end_at_the_log_s_end() -> None:
    assert ends_by_bytes(Backlog({T0: 5}, {T0: 5, T1: 7}, None), 1) == {T0: 5, T1: 7}
    assert ends_by_bytes(Backlog({T0: 9}, {T0: 5}, None), 1) == {T0: 5}


class Asked(MadeUpTier):
    """Keeps which offsets were asked for, and how many times."""

    times = 0

    def ends_inside(self, shares):  # type: ignore[no-untyped-def]
        self.times += 1
        self.ranges = {partition: share.offsets for partition, share in shares.items()}
        return super().ends_inside(shares)


def test_of_a_large_segment_only_what_is_around_a_small_share_is_located() -> None:
    tier = Asked({T0: [TieredLog(0, 1 << 20, 1, 1 << 10)]})  # 1 GiB
    assert ends_by_bytes(Backlog({T0: 0}, {T0: 1 << 20}, tier), 64 << 10) == {T0: 64}
    assert tier.ranges == {T0: OffsetRange(0, 2 << 10)}
    assert ends_by_bytes(Backlog({T0: 0}, {T0: 1 << 20}, tier), 64 << 20) == {T0: 64 << 10}
    assert tier.ranges == {T0: OffsetRange(0, 128 << 10)}


@pytest.mark.parametrize("partitions", [1, 400])
def test_one_question_tells_where_all_partitions_end_inside_of_segments(partitions: int) -> None:
    numbers = [TopicPartition("t", number) for number in range(partitions)]
    tier = Asked(dict.fromkeys(numbers, HUNDREDS))
    backlog = Backlog(dict.fromkeys(numbers, 0), dict.fromkeys(numbers, 300), tier)
    assert ends_by_bytes(backlog, 250 * partitions) == dict.fromkeys(numbers, 20)
    assert tier.times == 1


def test_inside_of_a_real_segment_a_batch_ends_where_record_batches_do() -> None:
    big = TopicPartition("s32-big", 0)
    locator = GoldenLocator()
    segment = locator.visible[big][0].segment
    share = segment.size // 4
    start, end = 0, len(segment.offsets)
    found = []
    while start < end:
        start = ends_by_bytes(Backlog({big: start}, {big: end}, locator), share)[big]
        found.append(start)
    (last,) = locator.locate({big: OffsetRange(found[-2], end)})[big]
    parts = [locator.locate({big: OffsetRange(first, until)})[big][0].bytes for first, until in pairwise([0, *found])]
    locator.close()

    assert found[-1] == end and last.bytes.end == segment.size
    # A start is looked up in the index, whose entries lie 4 KiB apart: no more is read twice, so no batch is cut.
    assert all(0 <= before.end - after.start < 16 << 10 for before, after in pairwise(parts))
    assert all(len(part) < 1.5 * share for part in parts)


class Unasked(MadeUpTier):
    def segments(self, ranges):  # type: ignore[no-untyped-def]
        raise AssertionError("nobody had to be asked")


def test_of_a_few_records_nobody_has_to_be_asked_how_large_they_are() -> None:
    assert ends_by_bytes(Backlog({T0: 0}, {T0: 32}, Unasked({})), 64 << 30) == {T0: 32}


@pytest.mark.parametrize(("limit", "records"), [("1g", 51), ("64g", 3276), ("70g", 3584)])
def test_records_above_the_brokers_default_limit_count_with_their_own_size(limit: str, records: int) -> None:
    stream = planner(60_010, [TieredLog(0, 60_000, 1, 20 << 20)], maxBytesPerTrigger=limit)
    assert stream.next_end(stream.initial(), limited=True) == {T0: records}
    tail = stream.next_end({T0: 60_000}, limited=True)
    assert tail == {T0: 60_010}, "offsets that are not tiered yet have the size of the tiered ones"


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 200)), max_size=6),
    st.integers(0, 500), st.integers(1, 3000), st.integers(1, 100_000),
)  # fmt: skip
def test_every_batch_gets_on_and_none_goes_beyond_the_end(
    segments: list[tuple[int, int]], start: int, lag: int, limit: int
) -> None:
    logs, at = [], 0
    for size, gap in segments:
        logs.append(TieredLog(at, at + size))
        at += size + gap
    assert start < ends(limit, start, start + lag, logs) <= start + lag


def planner(latest: int, logs: list[TieredLog], **given: str) -> StreamPlanner:
    raw = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "startingOffsets": "earliest", **given}
    reader = InMemoryOffsets({"t": [Log(0, latest)]})
    return StreamPlanner(parse_options(raw, streaming=True), reader, MadeUpTier({T0: logs}))


def run(**given: str) -> list[int]:
    """Where the micro-batches end of a stream over three segments and a tail."""
    stream = planner(320, HUNDREDS, **given)
    found, start = [], stream.initial()
    while (end := stream.next_end(start, limited=True)) != start:
        assert stream.ranges(start, end) == {T0: OffsetRange(start[T0], end[T0])}
        found.append(end[T0])
        start = end
    return found


def test_a_stream_reads_everything_in_batches_of_so_many_bytes() -> None:
    assert run(maxBytesPerTrigger="2k") == [200, 320]
    assert run(maxBytesPerTrigger="600") == [60, 100, 160, 200, 260, 320]


HISTORY = [TieredLog(number << 20, (number + 1) << 20, 1, 40 << 10) for number in range(5)]
"""Segments of 40 GiB each."""


@pytest.mark.parametrize(
    ("given", "segments"), [({}, 1), ({"maxBytesPerTrigger": "100g"}, 2), ({"maxBytesPerTrigger": "1p"}, 5)]
)
def test_a_first_batch_over_a_long_history_is_bounded_unless_told_otherwise(
    given: dict[str, str], segments: int
) -> None:
    stream = planner(5 << 20, HISTORY, **given)
    assert stream.next_end(stream.initial(), limited=True) == {T0: segments << 20}


def test_of_two_limits_the_lower_one_holds() -> None:
    assert run(maxBytesPerTrigger="2k", maxOffsetsPerTrigger="150") == [100, 200, 320]
    assert run(maxBytesPerTrigger="1k", maxOffsetsPerTrigger="1000") == [100, 200, 300, 320]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 50)), max_size=6), st.integers(0, 200), st.integers(1, 200)
)
def test_spans_have_each_offset_once_and_their_part_of_a_segments_bytes(
    logs: list[tuple[int, int]], start: int, more: int
) -> None:
    tiered, at = [], 0
    for gap, size in logs:
        tiered.append(TieredLog(at + gap, at + gap + size))
        at += gap + size
    offsets = OffsetRange(start, start + more)
    segments = MadeUpTier({T0: tiered}).segments({T0: offsets})[T0]
    made = _Spans.of(offsets, segments)
    spans = [
        _EndInside(start, end, int(size), segments[at // 2].segment if at % 2 else None, share=0)
        for at, (start, end, size) in enumerate(zip(made.bounds, made.bounds[1:], made.bytes, strict=False))
        if start < end
    ]
    assert made.bytes.sum() == sum(span.bytes for span in spans)
    assert [offset for span in spans for offset in range(span.start, span.end)] == list(range(start, start + more))
    for span in spans:
        if span.segment is not None:
            part = Fraction(span.end - span.start, len(span.segment.offsets)) * span.segment.size
            assert span.bytes == max(1, math.ceil(part))
    of_segments = [span.segment for span in spans if span.segment is not None]
    assert of_segments == [visible.segment for visible in segments if len(visible.offsets.intersect(offsets))]
