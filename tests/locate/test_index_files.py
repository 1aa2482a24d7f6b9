"""Index files: golden ones parse, lookups equal a plain search, and any bytes give entries or our own error."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.locate.index_files import parse_time_index, parse_transaction_index
from tiered_stream.locate.offset_index import parse_offset_index
from tiered_stream.model import AbortedTransaction
from tiered_stream.options.types import LONG_MAX

BASE = 1000
SIZE = 1 << 20


def offset_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", offset, position) for offset, position in entries)


def time_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", timestamp, offset) for timestamp, offset in entries)


def transaction_index(*entries: tuple[int, int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", *entry) for entry in entries)


class TestOffsetIndex:
    def test_reading_starts_at_the_greatest_entry_at_or_below_the_offset(self) -> None:
        index = parse_offset_index(offset_index((10, 500), (20, 900)), BASE, SIZE)
        assert [index.start_position(BASE + offset) for offset in (0, 9, 10, 19, 20, 99)] == [0, 0, 500, 500, 900, 900]

    def test_reading_stops_at_the_entry_after_the_first_that_reaches_the_last_wanted_offset(self) -> None:
        index = parse_offset_index(offset_index((10, 500), (20, 900)), BASE, SIZE)
        assert [index.end_position(BASE + end, SIZE) for end in (1, 11, 12, 21, 22)] == [900, 900, SIZE, SIZE, SIZE]

    def test_an_empty_index_means_the_whole_segment(self) -> None:
        index = parse_offset_index(b"", BASE, SIZE)
        assert (index.start_position(BASE + 5), index.end_position(BASE + 6, SIZE)) == (0, SIZE)

    def test_zeros_left_by_a_crash_at_the_end_are_ignored(self) -> None:
        index = parse_offset_index(offset_index((10, 500), (0, 0), (0, 0)), BASE, SIZE)
        assert index.offsets.tolist() == [BASE + 10]

    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99), st.integers(1, 4)), max_size=30), st.data())
    def test_the_bytes_hold_every_batch_with_a_wanted_offset(
        self, batches: list[tuple[int, int, int]], data: st.DataObject
    ) -> None:
        """`batches`: records, bytes and how many batches later the next index entry comes."""
        log, entries, offset, position, wait = [], [], 0, 0, 0
        for records, size, every in batches:
            log.append((offset, offset + records - 1, position))
            if wait <= 0 and position:
                entries.append((offset + records - 1, position))
                wait = every
            offset, position, wait = offset + records, position + size, wait - 1
        index = parse_offset_index(offset_index(*entries), 0, max(position, 1))
        start = data.draw(st.integers(0, offset))
        end = data.draw(st.integers(start, offset))
        first, stop = index.start_position(start), index.end_position(end, position)
        wanted = [at for begin, last, at in log if begin < end and last >= start and start < end]
        assert all(first <= at < stop for at in wanted)


class TestTimeIndex:
    @given(st.lists(st.tuples(st.integers(-1, 50), st.integers(0, 3)), max_size=20), st.integers(-2, 60))
    def test_lookup_equals_a_plain_search(self, steps: list[tuple[int, int]], wanted: int) -> None:
        timestamps = sorted({timestamp for timestamp, _ in steps})
        offsets = [sum(step for _, step in steps[: at + 1]) + 1 for at in range(len(timestamps))]
        index = parse_time_index(time_index(*zip(timestamps, offsets, strict=True)), BASE)
        entry = bisect_right(timestamps, wanted) - 1
        assert index.floor_offset(wanted) == BASE + (offsets[entry] if entry >= 0 else 0)


class TestTransactionIndex:
    def test_entries_are_read_in_order(self) -> None:
        data = transaction_index((0, 7, 900, 1005, 1001), (0, 8, 1001, 1010, 1011))
        first, second = parse_transaction_index(data, BASE)
        assert first.transaction == AbortedTransaction(7, 900, 1005)
        assert (second.transaction, second.last_stable_offset) == (AbortedTransaction(8, 1001, 1010), 1011)

    def test_another_version_is_not_guessed_at(self) -> None:
        with pytest.raises(UnsupportedDataError, match="version 1"):
            parse_transaction_index(transaction_index((1, 7, 900, 1005, 1)), BASE)


@pytest.mark.parametrize(
    ("parse", "data", "message"),
    [
        (parse_offset_index, b"\0" * 7, "7 bytes"),
        (parse_offset_index, offset_index((10, 500), (10, 600)), "offsets that do not ascend"),
        (parse_offset_index, offset_index((10, 500), (11, 500)), "positions that do not ascend"),
        (parse_offset_index, offset_index((10, SIZE)), "in a segment of"),
        (parse_offset_index, offset_index((10, -1)), "positions -1"),
        (parse_offset_index, offset_index((-1, 10)), "below the segment's base"),
        (parse_offset_index, offset_index((0, 0), (0, 0), (10, 500)), "do not ascend"),
        (parse_time_index, b"\1" * 13, "13 bytes"),
        (parse_time_index, time_index((100, 3), (100, 4)), "timestamps that do not ascend"),
        (parse_time_index, time_index((100, 3), (101, 2)), "offsets that descend"),
        (parse_time_index, time_index((100, -3)), "below the segment's base"),
        (parse_transaction_index, b"\0" * 35, "35 bytes"),
        (
            parse_transaction_index,
            transaction_index((0, 7, 900, 1005, 1), (0, 8, 901, 1005, 1)),
            "last offsets that do not ascend",
        ),
        (parse_transaction_index, transaction_index((0, 7, 900, 999, 1)), "ended at 999"),
        (parse_transaction_index, transaction_index((0, 7, 1006, 1005, 1)), "ends before its start"),
        (parse_transaction_index, transaction_index((0, 7, -1, 1005, 1)), "ends before its start"),
        (parse_transaction_index, transaction_index((0, 7, 900, 1005, -1)), "negative last stable offset"),
    ],
)
def test_a_malformed_index_is_named(parse: Callable[..., object], data: bytes, message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        parse(data, BASE, *[SIZE] * (parse is parse_offset_index))


@pytest.mark.parametrize(
    ("parse", "data"), [(parse_offset_index, offset_index((10, 500))), (parse_time_index, time_index((100, 10)))]
)
def test_an_index_of_the_last_offsets_there_are_does_not_overflow(parse: Callable[..., Any], data: bytes) -> None:
    size = [SIZE] * (parse is parse_offset_index)
    assert parse(data, LONG_MAX - 10, *size).offsets.tolist() == [LONG_MAX]
    with pytest.raises(CorruptDataError, match="beyond 64 bits"):
        parse(data, LONG_MAX - 9, *size)


@given(st.binary(max_size=200))
def test_any_bytes_give_entries_or_our_own_error(data: bytes) -> None:
    for parse in (
        lambda: parse_offset_index(data, BASE, SIZE),
        lambda: parse_time_index(data, BASE),
        lambda: parse_transaction_index(data, BASE),
    ):
        with suppress(CorruptDataError, UnsupportedDataError):
            parse()


def test_the_offset_after_the_batches_before_an_entry_lies_between_its_neighbours_last_offsets() -> None:
    index = parse_offset_index(offset_index((10, 500), (20, 900), (21, 1000)), BASE, SIZE)
    found = [index.following(position) for position in (500, 900, 1000)]
    assert found == [(0, BASE + 10), (BASE + 11, BASE + 20), (BASE + 21, BASE + 21)]


def test_the_least_that_an_index_may_say_is_read() -> None:
    offsets = parse_offset_index(offset_index((0, 0), (1, 1)), BASE, 2)
    assert (offsets.offsets.tolist(), offsets.positions.tolist()) == ([BASE, BASE + 1], [0, 1])
    times = parse_time_index(time_index((0, 0), (1, 0)), BASE)
    assert (times.timestamps.tolist(), times.offsets.tolist()) == ([0, 1], [BASE, BASE])
    (only,) = parse_transaction_index(transaction_index((0, 7, 0, 0, 0)), 0)
    assert (only.transaction, only.last_stable_offset) == (AbortedTransaction(7, 0, 0), 0)


def test_an_index_of_zeros_alone_has_no_entries() -> None:
    assert parse_offset_index(bytes(24), BASE, SIZE).offsets.tolist() == []
    assert parse_time_index(bytes(24), BASE).offsets.tolist() == []
