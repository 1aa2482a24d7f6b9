"""Byte ranges by the offset index, and cuts at batch starts, over a made-up log."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.locate.segments import segment
from tests.tier.fetchers import IndexesOnly
from tiered_stream.locate.index_files import IndexCache
from tiered_stream.locate.locator import SegmentShare
from tiered_stream.locate.offset_index import SegmentPositions
from tiered_stream.model import AbortedTransaction, ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation, touching
from tiered_stream.storage.fetcher import IndexType

BATCH_BYTES = 100
BATCHES = 20
SEGMENT = segment(1, 1000, 1000 + 10 * BATCHES, size=BATCH_BYTES * BATCHES)


class MadeUpLog(IndexesOnly):
    """Twenty batches of ten records and a hundred bytes, every second indexed; of the log nobody gets a byte."""

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        entries = [(10 * at + 9, BATCH_BYTES * at) for at in range(2, BATCHES, 2)]
        return {IndexType.OFFSET: b"".join(struct.pack(">ii", *entry) for entry in entries)}


class ChunkedLog(MadeUpLog):
    """Likes to be asked for chunks of 700 bytes."""

    def request_ranges(self, segment: RemoteLogSegment, wanted: ByteRange, request_bytes: int) -> Sequence[ByteRange]:
        edges = [wanted.start, *range(700, wanted.end, 700), wanted.end]
        return [ByteRange(start, end) for start, end in pairwise(edges)]


def positions(log: MadeUpLog | None = None) -> SegmentPositions:
    made = log or MadeUpLog()
    return SegmentPositions(made, IndexCache(made))


def location(start: int, end: int, first_byte: int, end_byte: int) -> SegmentLocation:
    return SegmentLocation(SEGMENT, OffsetRange(start, end), ByteRange(first_byte, end_byte))


def test_a_part_begins_and_ends_at_index_entries() -> None:
    found = positions().location(SEGMENT, OffsetRange(1055, 1105))
    assert found == replace(location(1055, 1105, 400, 1200), following=(1110, 1129))


def test_a_whole_segment_needs_no_index() -> None:
    assert positions().location(SEGMENT, OffsetRange(0, 5000)) == location(0, 5000, 0, 2000)


WHOLE = location(1000, 1200, 0, 2000)


def test_a_cut_needs_the_index_alone_and_reads_one_interval_of_it_twice() -> None:
    parts = positions().cut(WHOLE, 500)
    assert [(part.offsets, part.bytes, part.following) for part in parts] == [
        (OffsetRange(1000, 1070), ByteRange(0, 800), (1070, 1089)),
        (OffsetRange(1070, 1110), ByteRange(600, 1200), (1110, 1129)),
        (OffsetRange(1110, 1170), ByteRange(1000, 1800), (1170, 1189)),
        (OffsetRange(1170, 1200), ByteRange(1600, 2000), None),
    ]


def test_each_part_has_the_whole_batches_that_begin_in_its_offsets() -> None:
    for size in range(100, 2100, 100):
        for part in positions().cut(WHOLE, size):
            assert part.offsets.start % 10 == 0 and part.offsets.end % 10 == 0
            assert part.bytes.start <= 10 * (part.offsets.start - 1000)
            assert part.bytes.end >= 10 * (part.offsets.end - 1000)


def test_a_chunked_layout_is_cut_at_the_first_entry_after_a_chunk_begins() -> None:
    parts = positions(ChunkedLog()).cut(WHOLE, 500)
    assert [part.bytes.start for part in parts] == [0, 800, 1400]


def test_a_small_location_stays_whole() -> None:
    assert positions().cut(WHOLE, 2000) == [WHOLE]


def test_batches_outside_the_wanted_offsets_are_no_cuts() -> None:
    parts = positions().cut(location(1065, 1099, 400, 1200), 150)
    assert [(part.offsets, part.bytes) for part in parts] == [
        (OffsetRange(1065, 1070), ByteRange(400, 800)),
        (OffsetRange(1070, 1090), ByteRange(600, 1000)),
        (OffsetRange(1090, 1099), ByteRange(800, 1200)),
    ]


def test_a_location_is_cut_at_any_offsets_inside_of_it() -> None:
    parts = positions().cut_at(location(1065, 1150, 400, 1600), [1066, 1100])
    assert [(part.offsets, part.bytes, part.following) for part in parts] == [
        (OffsetRange(1065, 1066), ByteRange(400, 800), (1070, 1089)),
        (OffsetRange(1066, 1100), ByteRange(400, 1200), (1110, 1129)),
        (OffsetRange(1100, 1150), ByteRange(800, 1600), None),
    ]
    assert positions().cut_at(WHOLE, []) == [WHOLE]


def test_each_part_has_the_aborted_transactions_that_touch_it() -> None:
    first, second = AbortedTransaction(7, 900, 1069), AbortedTransaction(8, 1050, 1100)
    whole = SegmentLocation(SEGMENT, OffsetRange(1000, 1200), ByteRange(0, 2000), (first, second))
    parts = positions().cut(whole, 500)
    assert [part.aborted_transactions for part in parts] == [(first, second), (second,), (), ()]


@pytest.mark.parametrize(
    ("start", "end", "size", "found"),
    [
        (1000, 1200, 1, 1030),
        (1000, 1200, 400, 1030),
        (1000, 1200, 800, 1070),
        (1000, 1200, 999, 1070),
        (1000, 1200, 1000, 1090),
        (1000, 1200, 5000, 1200),
        (1055, 1200, 400, 1070),
        (1055, 1200, 1, 1070),
        (1000, 1065, 900, 1065),
        (1195, 1200, 1, 1200),
    ],
)
def test_a_share_ends_where_a_batch_does_and_before_its_bytes_do(start: int, end: int, size: int, found: int) -> None:
    assert positions().end_of(SegmentShare(SEGMENT, OffsetRange(start, end), size)) == found


class TimedLog(MadeUpLog):
    """Records up to offset 1039 are no newer than 100 ms, up to 1099 no newer than 200 ms. Counts index requests."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes: list[set[IndexType]] = []

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        self.indexes.append(set(types))
        times = b"".join(struct.pack(">qi", *entry) for entry in ((100, 39), (200, 99), (300, 199)))
        return {**super().fetch_indexes(segment, types), IndexType.TIMESTAMP: times}


def test_what_ends_where_an_index_told_needs_the_index_no_second_time() -> None:
    log = TimedLog()
    made = SegmentPositions(log, IndexCache(log, max_bytes=0))
    end = made.end_of(SegmentShare(SEGMENT, OffsetRange(1055, 1200), 800))
    assert made.location(SEGMENT, OffsetRange(1055, end)) == positions().location(SEGMENT, OffsetRange(1055, end))
    assert len(log.indexes) == 1


@pytest.mark.parametrize(
    ("wanted", "first_byte", "end_byte", "requests"),
    [((1000, 1200), 0, 2000, 0), ((1000, 1105), 0, 1200, 1), ((1055, 1200), 400, 2000, 1)],
    ids=["all of it", "to an offset inside", "from an offset inside"],
)
def test_an_index_tells_each_end_of_a_part_that_lies_inside_the_segment(
    wanted: tuple[int, int], first_byte: int, end_byte: int, requests: int
) -> None:
    log = TimedLog()
    found = positions(log).location(SEGMENT, OffsetRange(*wanted))
    assert (found.offsets, found.bytes) == (OffsetRange(*wanted), ByteRange(first_byte, end_byte))
    assert (found.following is None, len(log.indexes)) == (end_byte == 2000, requests)


@pytest.mark.parametrize(
    ("timestamp", "start", "first_byte"),
    [(100, 1000, 0), (101, 1039, 200), (200, 1039, 200), (201, 1099, 800), (300, 1099, 800), (301, 1199, 1800)],
)
def test_what_is_as_new_as_a_time_begins_behind_the_last_entry_that_is_older(
    timestamp: int, start: int, first_byte: int
) -> None:
    aborted = AbortedTransaction(7, 900, 1038), AbortedTransaction(8, 1000, 1199)
    whole = replace(location(1000, 1200, 0, 2000), aborted_transactions=aborted)
    found = positions(TimedLog()).since(whole, timestamp)
    assert found is not None
    assert (found.offsets, found.bytes) == (OffsetRange(start, 1200), ByteRange(first_byte, 2000))
    assert found.aborted_transactions == aborted[start > 1038 :]


def test_a_part_that_begins_or_ends_where_new_records_begin_stays_as_it_is_or_goes() -> None:
    by_index = positions(TimedLog())
    begins, ends = location(1099, 1200, 900, 2000), location(1000, 1099, 0, 1000)
    assert by_index.since(begins, 201) == begins
    assert by_index.since(ends, 201) is None
    assert by_index.since(replace(ends, offsets=OffsetRange(1000, 1100)), 201) is not None


def test_a_transaction_touches_offsets_if_it_has_one_of_them() -> None:
    before, first, last, after = (AbortedTransaction(7, *ends) for ends in ((0, 9), (5, 10), (19, 30), (20, 25)))
    assert touching((before, first, last, after), 10, 20) == (first, last)
