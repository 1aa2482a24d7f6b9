"""Bounds of the index cache; `tests/process/test_caches.py` has the rest of it."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.locate.segments import segment
from tests.tier.fetchers import IndexesOnly
from tiered_stream.locate.index_files import IndexCache
from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.fetcher import IndexType


class CountingFetcher(IndexesOnly):
    """Gives a thousand bytes for every index; has no log."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        self.asked.append(segment.segment_id.int)
        return {index_type: bytes(1000) for index_type in types}


@pytest.mark.parametrize(("max_bytes", "asked"), [(3500, [1, 2, 3, 2]), (100, [1, 2, 1, 3, 1, 2])])
def test_the_least_recently_used_goes_first_and_what_is_larger_than_the_bound_is_not_kept(
    max_bytes: int, asked: list[int]
) -> None:
    fetcher = CountingFetcher()
    cache = IndexCache(fetcher, max_bytes)
    for number in (1, 2, 1, 3, 1, 2):
        assert len(cache.get(segment(number, 0, 10), (IndexType.OFFSET,))[IndexType.OFFSET]) == 1000
    assert fetcher.asked == asked
