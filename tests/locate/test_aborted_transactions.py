"""How far the search for aborted transactions goes."""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import replace

import google_crc32c
import pytest

from tests.locate.segments import segment
from tests.tier.fetchers import IndexesOnly
from tiered_stream.errors import CorruptDataError
from tiered_stream.locate.aborted_transactions import AbortedSearch, find_aborted
from tiered_stream.locate.index_files import IndexCache
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import AbortedTransaction, OffsetRange, RemoteLogSegment
from tiered_stream.storage.fetcher import IndexType

FIRST, SECOND, THIRD = segment(1, 0, 100), segment(2, 100, 200), segment(3, 200, 300)
WANTED = OffsetRange(10, 90)


class IndexFetcher(IndexesOnly):
    """Gives indexes of (producer id, first, last, last stable offset), and of where open transactions began; no log."""

    def __init__(
        self, aborted: dict[int, list[tuple[int, int, int, int]]], still_open: dict[int, list[int]] | None = None
    ) -> None:
        self.aborted = aborted
        self.still_open = still_open or {}
        self.asked: list[int] = []

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        number = segment.segment_id.int
        if IndexType.TRANSACTION in types:
            self.asked.append(number)
        indexes = {}
        if number in self.aborted:
            entries = [struct.pack(">hqqqq", 0, *entry) for entry in self.aborted[number]]
            indexes[IndexType.TRANSACTION] = b"".join(entries)
        if number in self.still_open:
            producers = [struct.pack(">qhiqiqiq", 1, 0, 0, 0, 0, 0, 0, first) for first in self.still_open[number]]
            body = struct.pack(">i", len(producers)) + b"".join(producers)
            indexes[IndexType.PRODUCER_SNAPSHOT] = struct.pack(">hI", 1, google_crc32c.value(body)) + body
        return indexes


def whole(*segments: RemoteLogSegment) -> list[VisibleSegment]:
    return [VisibleSegment(each, each.offsets) for each in segments]


def search(fetcher: IndexFetcher, *visible: VisibleSegment, wanted: OffsetRange = WANTED) -> AbortedSearch:
    return find_aborted(VisibleSegments.of(visible), 0, wanted, IndexCache(fetcher))


def test_a_transaction_that_spans_segments_is_found_where_it_ended() -> None:
    fetcher = IndexFetcher({2: [(7, 50, 150, 151)]})
    assert search(fetcher, *whole(FIRST, SECOND, THIRD)) == AbortedSearch((AbortedTransaction(7, 50, 150),), None)
    assert fetcher.asked == [1, 2]


def test_the_search_goes_on_while_an_earlier_transaction_is_undecided() -> None:
    fetcher = IndexFetcher({1: [(7, 20, 30, 25)], 2: [(8, 110, 120, 25)], 3: [(9, 25, 210, 211)]})
    found = search(fetcher, *whole(FIRST, SECOND, THIRD))
    assert found == AbortedSearch((AbortedTransaction(7, 20, 30), AbortedTransaction(9, 25, 210)), None)


def test_transactions_that_do_not_touch_the_wanted_offsets_are_left_out() -> None:
    fetcher = IndexFetcher({1: [(7, 0, 9, 10), (8, 0, 10, 11), (9, 90, 95, 96)]})
    assert search(fetcher, *whole(FIRST)).transactions == (AbortedTransaction(8, 0, 10),)


def test_a_producer_snapshot_without_earlier_open_transactions_ends_the_search() -> None:
    fetcher = IndexFetcher({}, still_open={1: [-1, 95]})
    assert search(fetcher, *whole(FIRST, SECOND)) == AbortedSearch((), None)
    assert fetcher.asked == [1]


def test_a_producer_snapshot_with_an_earlier_open_transaction_does_not() -> None:
    fetcher = IndexFetcher({2: [(1, 80, 110, 111)]}, still_open={1: [80], 2: []})
    assert search(fetcher, *whole(FIRST, SECOND)) == AbortedSearch((AbortedTransaction(1, 80, 110),), None)


def test_segments_whose_metadata_says_that_they_have_no_index_are_not_asked() -> None:
    fetcher = IndexFetcher({3: [(7, 50, 250, 251)]})
    empty = [replace(each, transaction_index_empty=True) for each in (FIRST, SECOND)]
    assert search(fetcher, *whole(*empty, THIRD)).transactions == (AbortedTransaction(7, 50, 250),)
    assert fetcher.asked == [3]


def test_runs_of_segments_without_an_index_are_jumped_over() -> None:
    empty = [segment(number, 10 * number, 10 * number + 10) for number in range(1, 2001)]
    visible = VisibleSegments.of(whole(*(replace(each, transaction_index_empty=True) for each in empty)))
    assert {visible.next_stop(at) for at in range(2000)} == {1999}
    indexed = VisibleSegments.of([*visible[:500], *whole(empty[500]), *visible[501:1000], *visible[1010:]])
    stops = [indexed.next_stop(at) for at in range(len(indexed))]
    assert stops == [500] * 501 + [999] * 499 + [1989] * 990
    assert search(IndexFetcher({}), *visible, wanted=OffsetRange(10, 20)).seam == 20010


def test_a_transaction_that_ends_beyond_its_segment_is_refused() -> None:
    with pytest.raises(CorruptDataError, match=r"from offset 0: transaction index: .* 105"):
        search(IndexFetcher({1: [(1, 60, 105, 111)]}), *whole(FIRST, SECOND))


def test_where_the_tier_ends_undecided_the_seam_is_its_end() -> None:
    assert search(IndexFetcher({}), *whole(FIRST, SECOND)) == AbortedSearch((), 200)


def test_where_the_tier_has_a_gap_the_seam_is_the_gap() -> None:
    fetcher = IndexFetcher({3: [(7, 50, 250, 251)]})
    assert search(fetcher, *whole(FIRST, THIRD)) == AbortedSearch((), 100)


def test_markers_outside_the_offsets_for_which_a_segment_counts_are_of_another_history() -> None:
    fetcher = IndexFetcher({1: [(7, 20, 30, 31), (7, 40, 95, 96)], 2: [(8, 60, 150, 151)]}, still_open={1: []})
    shortened = VisibleSegment(FIRST, OffsetRange(0, 90))
    rest = VisibleSegment(replace(SECOND, base_offset=90), OffsetRange(90, 200))
    found = search(fetcher, shortened, rest)
    assert found == AbortedSearch((AbortedTransaction(7, 20, 30), AbortedTransaction(8, 60, 150)), None)


def test_a_malformed_index_is_named_with_its_segment() -> None:
    fetcher = IndexFetcher({1: [(7, 40, 30, 96)]})
    with pytest.raises(CorruptDataError, match=r"segment A{21}Q of orders-0 from offset 0: transaction index"):
        search(fetcher, *whole(FIRST))


@pytest.mark.parametrize(("last_stable", "asked"), [(90, [1]), (89, [1, 2])])
def test_an_entry_whose_last_stable_offset_is_the_wanted_end_decides_and_one_before_it_does_not(
    last_stable: int, asked: list[int]
) -> None:
    """The last wanted offset, 89, begins a transaction that ends in the next segment."""
    fetcher = IndexFetcher({1: [(7, 20, 30, last_stable)], 2: [(9, 89, 150, 151)]})
    later = () if last_stable == 90 else (AbortedTransaction(9, 89, 150),)
    found = search(fetcher, *whole(FIRST, SECOND))
    assert found == AbortedSearch((AbortedTransaction(7, 20, 30), *later), None)
    assert fetcher.asked == asked


@pytest.mark.parametrize(("still_open", "asked"), [(90, [1]), (89, [1, 2])])
def test_a_transaction_open_at_the_segments_end_keeps_the_search_going_if_it_began_at_the_last_wanted_offset(
    still_open: int, asked: list[int]
) -> None:
    fetcher = IndexFetcher({2: [(1, still_open, 150, 151)]}, still_open={1: [still_open], 2: []})
    found = (AbortedTransaction(1, 89, 150),) if still_open == 89 else ()
    assert search(fetcher, *whole(FIRST, SECOND)) == AbortedSearch(found, None)
    assert fetcher.asked == asked


def test_a_transaction_that_begins_at_the_last_wanted_offset_touches_the_wanted_offsets() -> None:
    fetcher = IndexFetcher({1: [(8, 89, 95, 96), (9, 90, 97, 98)]})
    assert search(fetcher, *whole(FIRST)).transactions == (AbortedTransaction(8, 89, 95),)


def test_a_transaction_may_begin_and_end_with_its_segment() -> None:
    fetcher = IndexFetcher({2: [(7, 100, 199, 200)]}, still_open={1: [], 2: []})
    found = find_aborted(VisibleSegments.of(whole(FIRST, SECOND)), 1, OffsetRange(100, 200), IndexCache(fetcher))
    assert found == AbortedSearch((AbortedTransaction(7, 100, 199),), None)
