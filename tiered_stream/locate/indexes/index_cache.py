"""Cache of segments' index files, with a limit of its bytes; the least recently used indexes are dropped first."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from tiered_stream.model import RemoteLogSegment
from tiered_stream.process.single_flight import SingleFlightCache
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

DEFAULT_CACHE_BYTES = 64 << 20

_ENTRY_OVERHEAD = 512
"""Assumed memory of an entry in bytes in addition to its data, so that the number of empty entries is bounded too."""

_Indexes = dict[IndexType, bytes]


class IndexCache:
    """Cache of segments' indexes for many threads; threads that want the same indexes of a segment share one request.

    An entry has the indexes of one segment that were requested together. Callers request only a few combinations.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._fetcher = fetcher
        self._cache: SingleFlightCache[tuple[UUID, frozenset[IndexType]], _Indexes] = SingleFlightCache(
            max_bytes, _cost
        )

    def get(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> _Indexes:
        """Return the bytes of the segment's indexes by type; types that the segment does not have are left out.

        Raises: the errors of `RemoteStorageFetcher.fetch_indexes`.
        """
        key = segment.segment_id, frozenset(types)
        return self._cache.get(key, lambda: self._fetcher.fetch_indexes(segment, key[1]))


def _cost(indexes: _Indexes) -> int:
    return _ENTRY_OVERHEAD + sum(len(data) for data in indexes.values())
