"""Signed URLs of segments, each created once and reused while at least three quarters of its lifetime are left."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from uuid import UUID

from cachetools import TTLCache
from prometheus_client import Counter

from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_CACHED = 200_000  # maximum number of signed URLs in the cache, about 100 MB


class LocationSigner:
    """Creator and cache of signed URLs of segments. Thread-safe.

    Args:
        fetcher: signs URLs with the storage's credentials.
        lifetime_seconds: lifetime of a signed URL; 0 turns signing off.
        created: counts new URLs, without reused ones.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, lifetime_seconds: int, created: Counter) -> None:
        self._fetcher = fetcher
        self._created = created
        self._lifetime_seconds = lifetime_seconds
        self._lock = threading.Lock()
        self._signed: TTLCache[UUID, str | None] = TTLCache(_CACHED, self.fresh_seconds, time.monotonic)

    @property
    def enabled(self) -> bool:
        return self._lifetime_seconds > 0

    @property
    def fresh_seconds(self) -> float:
        """Return the number of seconds for which a signed URL is reused: a quarter of its lifetime."""
        return self._lifetime_seconds / 4

    def sign(self, segment: RemoteLogSegment) -> str | None:
        """Return a signed URL of the segment's log file, or None if signing is off or the storage cannot sign.

        Raises:
            StorageError, CorruptDataError, UnsupportedDataError: the segment's manifest was needed and not readable.
        """
        if not self.enabled:
            return None
        with self._lock, suppress(KeyError):  # only one lookup, because an entry may expire before a second lookup
            return self._signed[segment.segment_id]
        url = self._fetcher.signed_location(segment, self._lifetime_seconds)
        self._created.inc(url is not None)
        with self._lock:
            self._signed[segment.segment_id] = url
        return url
