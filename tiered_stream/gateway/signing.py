"""Signed locations of segments, each made once and given out again while three quarters of its life are left."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from uuid import UUID

from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_CACHED = 200_000  # some 100 MB


class LocationSigner:
    """Serves many threads. `lifetime_seconds`: 0 signs nothing."""

    def __init__(self, fetcher: RemoteStorageFetcher, lifetime_seconds: int) -> None:
        self._fetcher = fetcher
        self._lifetime_seconds = lifetime_seconds
        self._lock = threading.Lock()
        self._signed: OrderedDict[UUID, tuple[float, str | None]] = OrderedDict()
        self.signed_total = 0

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
        now = time.monotonic()
        with self._lock:
            made_at, url = self._signed.get(segment.segment_id, (float("-inf"), None))
        if made_at + self.fresh_seconds > now:
            return url
        url = self._fetcher.signed_location(segment, self._lifetime_seconds)
        with self._lock:
            self.signed_total += url is not None
            self._signed[segment.segment_id] = (now, url)
            self._signed.move_to_end(segment.segment_id)
            while len(self._signed) > _CACHED:
                self._signed.popitem(last=False)
        return url
