"""Index files, fetched once and kept within a bound of bytes, least recently used first to go."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import Future
from uuid import UUID

from tiered_stream.model import RemoteLogSegment, uuid_to_text
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

DEFAULT_CACHE_BYTES = 64 << 20

_ENTRY_OVERHEAD = 512  # bytes that an entry costs beside its data, so that empty ones are bounded too

_Key = tuple[UUID, frozenset[IndexType]]
_Indexes = dict[IndexType, bytes]


class IndexCache:
    """Serves many threads; threads that want the same indexes of the same segment share one request.

    What is cached are sets of indexes as they were asked for: a few fixed sets are asked for, each in one request.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._fetcher = fetcher
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._cached: OrderedDict[_Key, _Indexes] = OrderedDict()
        self._bytes = 0
        self._in_flight: dict[_Key, Future[_Indexes]] = {}

    def get(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> _Indexes:
        """The wanted indexes, those that do not exist left out. Raises: as `RemoteStorageFetcher.fetch_indexes`."""
        key = (segment.segment_id, frozenset(types))
        with self._lock:
            cached = self._cached.get(key)
            if cached is not None:
                self._cached.move_to_end(key)
                return cached
            running = self._in_flight.get(key)
            mine = self._in_flight.setdefault(key, Future()) if running is None else None
        if mine is None:
            assert running is not None
            return running.result()
        return self._fetch(key, segment, mine)

    def _fetch(self, key: _Key, segment: RemoteLogSegment, future: Future[_Indexes]) -> _Indexes:
        try:
            indexes = self._fetcher.fetch_indexes(segment, key[1])
        except BaseException as error:
            with self._lock:
                del self._in_flight[key]
            future.set_exception(error)
            raise
        with self._lock:
            del self._in_flight[key]
            self._keep(key, indexes)
        future.set_result(indexes)
        return indexes

    def _keep(self, key: _Key, indexes: _Indexes) -> None:
        self._cached[key] = indexes
        self._bytes += _cost(indexes)
        while self._bytes > self._max_bytes:
            _, dropped = self._cached.popitem(last=False)
            self._bytes -= _cost(dropped)


def _cost(indexes: _Indexes) -> int:
    return _ENTRY_OVERHEAD + sum(len(data) for data in indexes.values())


def describe(segment: RemoteLogSegment) -> str:
    """A segment, in an error message."""
    return f"segment {uuid_to_text(segment.segment_id)} of {segment.topic_partition} from offset {segment.base_offset}"
