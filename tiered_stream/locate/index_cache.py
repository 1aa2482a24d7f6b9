"""Index files, fetched once and kept within a bound of bytes, least recently used first to go."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from tiered_stream.model import RemoteLogSegment
from tiered_stream.single_flight import SingleFlightCache
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

DEFAULT_CACHE_BYTES = 64 << 20

_ENTRY_OVERHEAD = 512  # bytes that an entry costs beside its data, so that empty ones are bounded too

_Indexes = dict[IndexType, bytes]


class IndexCache:
    """Serves many threads; threads that want the same indexes of the same segment share one request.

    What is cached are sets of indexes as they were asked for: a few fixed sets are asked for, each in one request.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._fetcher = fetcher
        self._cache: SingleFlightCache[tuple[UUID, frozenset[IndexType]], _Indexes] = SingleFlightCache(
            max_bytes, _cost
        )

    def get(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> _Indexes:
        """The wanted indexes, those that do not exist left out. Raises: as `RemoteStorageFetcher.fetch_indexes`."""
        wanted = frozenset(types)
        return self._cache.get((segment.segment_id, wanted), lambda: self._fetcher.fetch_indexes(segment, wanted))


def _cost(indexes: _Indexes) -> int:
    return _ENTRY_OVERHEAD + sum(len(data) for data in indexes.values())
