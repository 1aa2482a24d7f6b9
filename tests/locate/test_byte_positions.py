"""Byte ranges by the offset index, and cuts at batch starts, over a made-up log."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.locate.segments import segment
from tiered_stream.errors import CorruptDataError
from tiered_stream.locate.byte_positions import SegmentPositions, touching
from tiered_stream.locate.index_cache import IndexCache
from tiered_stream.model import AbortedTransaction, ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

BATCH_BYTES = 100
BATCHES = 20
SEGMENT = segment(1, 1000, 1000 + 10 * BATCHES, size=BATCH_BYTES * BATCHES)


class MadeUpLog(RemoteStorageFetcher):
    """Twenty batches of ten records and a hundred bytes, every second indexed; only the headers mean something."""

    def __init__(self) -> None:
        self.magic = 2
        self.shift = 0
        self.length = BATCH_BYTES - 12
        self.asked: list[tuple[int, int]] = []

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        self.asked.append((start, end))
        log = b"".join(
            struct.pack(">qiib", 1000 + 10 * at + self.shift, self.length, 0, self.magic).ljust(BATCH_BYTES, b"\0")
            for at in range(BATCHES)
        )
        return log[start:end]

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        entries = [(10 * at + 9, BATCH_BYTES * at) for at in range(2, BATCHES, 2)]
        return {IndexType.OFFSET: b"".join(struct.pack(">ii", *entry) for entry in entries)}


class ChunkedLog(MadeUpLog):
    """Likes to be asked for chunks of 700 bytes."""

    def request_ranges(self, segment: RemoteLogSegment, wanted: ByteRange, request_bytes: int) -> Sequence[ByteRange]:
        edges = [wanted.start, *range(700, wanted.end, 700), wanted.end]
        return [ByteRange(start, end) for start, end in pairwise(edges)]


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def positions(log: MadeUpLog, executor: ThreadPoolExecutor) -> SegmentPositions:
    return SegmentPositions(log, IndexCache(log), executor)


def location(start: int, end: int, first_byte: int, end_byte: int) -> SegmentLocation:
    return SegmentLocation(SEGMENT, OffsetRange(start, end), ByteRange(first_byte, end_byte))


def test_a_part_begins_and_ends_at_index_entries(executor: ThreadPoolExecutor) -> None:
    found = positions(MadeUpLog(), executor).location(SEGMENT, OffsetRange(1055, 1105))
    assert found == replace(location(1055, 1105, 400, 1200), following=(1110, 1129))


def test_a_whole_segment_needs_no_index(executor: ThreadPoolExecutor) -> None:
    found = positions(MadeUpLog(), executor).location(SEGMENT, OffsetRange(0, 5000))
    assert found == location(0, 5000, 0, 2000)


def test_a_cut_begins_with_the_base_offset_of_its_first_batch(executor: ThreadPoolExecutor) -> None:
    log = MadeUpLog()
    parts = positions(log, executor).cut(location(1000, 1200, 0, 2000), 500)
    assert [(part.offsets.start, part.bytes.start, part.following) for part in parts] == [
        (1000, 0, (1050, 1060)),
        (1060, 600, (1090, 1100)),
        (1100, 1000, (1150, 1160)),
        (1160, 1600, None),
    ]
    assert (parts[-1].offsets.end, parts[-1].bytes.end) == (1200, 2000)
    assert sorted(log.asked) == [(600, 661), (1000, 1061), (1600, 1661)]


def test_a_chunked_layout_is_cut_at_the_first_entry_after_a_chunk_begins(executor: ThreadPoolExecutor) -> None:
    parts = positions(ChunkedLog(), executor).cut(location(1000, 1200, 0, 2000), 500)
    assert [part.bytes.start for part in parts] == [0, 800, 1400]


def test_a_small_location_stays_whole_without_a_request(executor: ThreadPoolExecutor) -> None:
    log = MadeUpLog()
    assert positions(log, executor).cut(location(1000, 1200, 0, 2000), 2000) == [location(1000, 1200, 0, 2000)]
    assert log.asked == []


def test_batches_outside_the_wanted_offsets_are_no_cuts(executor: ThreadPoolExecutor) -> None:
    parts = positions(MadeUpLog(), executor).cut(location(1065, 1099, 400, 1200), 150)
    assert [(part.offsets.start, part.bytes.start) for part in parts] == [(1065, 400), (1080, 800)]


def test_each_part_has_the_aborted_transactions_that_touch_it(executor: ThreadPoolExecutor) -> None:
    first, second = AbortedTransaction(7, 900, 1059), AbortedTransaction(8, 1050, 1100)
    whole = SegmentLocation(SEGMENT, OffsetRange(1000, 1200), ByteRange(0, 2000), (first, second))
    parts = positions(MadeUpLog(), executor).cut(whole, 500)
    assert [part.aborted_transactions for part in parts] == [(first, second), (second,), (second,), ()]


def test_old_formats_whose_headers_do_not_tell_the_first_offset_are_not_cut(executor: ThreadPoolExecutor) -> None:
    log = MadeUpLog()
    log.magic = 1
    assert len(positions(log, executor).cut(location(1000, 1200, 0, 2000), 500)) == 1


@pytest.mark.parametrize(("shift", "length", "message"), [(100, 88, "begins at offset"), (0, 3000, "3000 bytes")])
def test_a_batch_that_contradicts_its_index_is_refused(
    executor: ThreadPoolExecutor, shift: int, length: int, message: str
) -> None:
    log = MadeUpLog()
    log.shift, log.length = shift, length
    with pytest.raises(CorruptDataError, match=message):
        positions(log, executor).cut(location(1000, 1200, 0, 2000), 500)


class TimedLog(MadeUpLog):
    """Records up to offset 1039 are no newer than 100 ms, up to 1099 no newer than 200 ms. Counts index requests."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes: list[set[IndexType]] = []

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        self.indexes.append(set(types))
        times = b"".join(struct.pack(">qi", *entry) for entry in ((100, 39), (200, 99), (300, 199)))
        return {**super().fetch_indexes(segment, types), IndexType.TIMESTAMP: times}


@pytest.mark.parametrize(
    ("wanted", "first_byte", "end_byte", "requests"),
    [((1000, 1200), 0, 2000, 0), ((1000, 1105), 0, 1200, 1), ((1055, 1200), 400, 2000, 1)],
    ids=["all of it", "to an offset inside", "from an offset inside"],
)
def test_an_index_tells_each_end_of_a_part_that_lies_inside_the_segment(
    executor: ThreadPoolExecutor, wanted: tuple[int, int], first_byte: int, end_byte: int, requests: int
) -> None:
    log = TimedLog()
    found = positions(log, executor).location(SEGMENT, OffsetRange(*wanted))
    assert (found.offsets, found.bytes) == (OffsetRange(*wanted), ByteRange(first_byte, end_byte))
    assert (found.following is None, len(log.indexes)) == (end_byte == 2000, requests)


@pytest.mark.parametrize(
    ("timestamp", "start", "first_byte"),
    [(100, 1000, 0), (101, 1039, 200), (200, 1039, 200), (201, 1099, 800), (300, 1099, 800), (301, 1199, 1800)],
)
def test_what_is_as_new_as_a_time_begins_behind_the_last_entry_that_is_older(
    executor: ThreadPoolExecutor, timestamp: int, start: int, first_byte: int
) -> None:
    aborted = AbortedTransaction(7, 900, 1038), AbortedTransaction(8, 1000, 1199)
    whole = replace(location(1000, 1200, 0, 2000), aborted_transactions=aborted)
    found = positions(TimedLog(), executor).since(whole, timestamp)
    assert found is not None
    assert (found.offsets, found.bytes) == (OffsetRange(start, 1200), ByteRange(first_byte, 2000))
    assert found.aborted_transactions == aborted[start > 1038 :]


def test_a_part_that_begins_or_ends_where_new_records_begin_stays_as_it_is_or_goes(
    executor: ThreadPoolExecutor,
) -> None:
    by_index = positions(TimedLog(), executor)
    begins, ends = location(1099, 1200, 900, 2000), location(1000, 1099, 0, 1000)
    assert by_index.since(begins, 201) == begins
    assert by_index.since(ends, 201) is None
    assert by_index.since(replace(ends, offsets=OffsetRange(1000, 1100)), 201) is not None


def test_a_transaction_touches_offsets_if_it_has_one_of_them() -> None:
    before, first, last, after = (AbortedTransaction(7, *ends) for ends in ((0, 9), (5, 10), (19, 30), (20, 25)))
    assert touching((before, first, last, after), 10, 20) == (first, last)
