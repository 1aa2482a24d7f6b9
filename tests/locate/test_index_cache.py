"""The index cache: bounded, one request at a time for the same indexes, errors not kept."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.locate.segments import segment
from tests.tier.fetchers import IndexesOnly
from tiered_stream.errors import StorageUnavailableError
from tiered_stream.locate.index_files import IndexCache
from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.fetcher import IndexType

OFFSET = (IndexType.OFFSET,)


class CountingFetcher(IndexesOnly):
    """Gives `size` bytes for every index, once `gate` is open; has no log."""

    def __init__(self, size: int = 10) -> None:
        self.asked: list[int] = []
        self.size = size
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        self.asked.append(segment.segment_id.int)
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return {index_type: bytes(self.size) for index_type in types}


def test_what_is_asked_again_is_not_fetched_again() -> None:
    fetcher = CountingFetcher()
    cache = IndexCache(fetcher)
    assert cache.get(segment(1, 0, 10), OFFSET) == cache.get(segment(1, 0, 10), OFFSET)
    assert fetcher.asked == [1]


def test_the_least_recently_used_goes_first_when_the_bound_is_reached() -> None:
    fetcher = CountingFetcher(size=1000)
    cache = IndexCache(fetcher, max_bytes=3500)
    for number in (1, 2, 1, 3, 1, 2):
        cache.get(segment(number, 0, 10), OFFSET)
    assert fetcher.asked == [1, 2, 3, 2]


def test_indexes_larger_than_the_bound_are_given_but_not_kept() -> None:
    fetcher = CountingFetcher(size=1000)
    cache = IndexCache(fetcher, max_bytes=100)
    assert len(cache.get(segment(1, 0, 10), OFFSET)[IndexType.OFFSET]) == 1000
    cache.get(segment(1, 0, 10), OFFSET)
    assert fetcher.asked == [1, 1]


def test_threads_that_want_the_same_share_one_request() -> None:
    fetcher = CountingFetcher()
    fetcher.gate.clear()
    cache = IndexCache(fetcher)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(cache.get, segment(1, 0, 10), OFFSET) for _ in range(8)]
        fetcher.gate.set()
        assert all(each.result(10)[IndexType.OFFSET] for each in waiting)
    assert fetcher.asked == [1]


def test_an_error_reaches_the_caller_and_is_forgotten() -> None:
    fetcher = CountingFetcher()
    cache = IndexCache(fetcher)
    fetcher.error = StorageUnavailableError("slow down")
    with pytest.raises(StorageUnavailableError):
        cache.get(segment(1, 0, 10), OFFSET)
    fetcher.error = None
    assert cache.get(segment(1, 0, 10), OFFSET)
    assert fetcher.asked == [1, 1]
