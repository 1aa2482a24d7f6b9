"""Signed locations of segments, each made once and given out again while three quarters of its life are left."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from uuid import UUID

from cachetools import TTLCache
from prometheus_client import Counter

from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_CACHED = 200_000  # some 100 MB


class LocationSigner:
    """Serves many threads. `lifetime_seconds`: 0 signs nothing. `made` counts those that are not given out again."""

    def __init__(self, fetcher: RemoteStorageFetcher, lifetime_seconds: int, made: Counter) -> None:
        self._fetcher = fetcher
        self._made = made
        self._lifetime_seconds = lifetime_seconds
        self._lock = threading.Lock()
        self._signed: TTLCache[UUID, str | None] = TTLCache(_CACHED, self.fresh_seconds, time.monotonic)

    @property
    def enabled(self) -> bool:
        return self._lifetime_seconds > 0

    @property
    def fresh_seconds(self) -> float:
        """For how long a signed location may be given out again."""
        return self._lifetime_seconds / 4

    def sign(self, segment: RemoteLogSegment) -> str | None:
        """A URL that reaches this segment's log and nothing else; None: there is none to give.

        Raises:
            StorageError, CorruptDataError, UnsupportedDataError: the storage has to be asked, and fails.
        """
        if not self.enabled:
            return None
        with self._lock, suppress(KeyError):  # by one look: between two it may expire
            return self._signed[segment.segment_id]
        url = self._fetcher.signed_location(segment, self._lifetime_seconds)
        self._made.inc(url is not None)
        with self._lock:
            self._signed[segment.segment_id] = url
        return url
