"""Signed URLs of segments, each created once and reused while at least three quarters of its lifetime are left."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from uuid import UUID

from cachetools import TLRUCache
from prometheus_client import Counter

from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_CACHED = 200_000  # maximum number of signed URLs in the cache, about 100 MB


@dataclass(frozen=True, slots=True)
class SignedLocation:
    """Signed URL of a segment's log file, or None, and the time (`time.monotonic`) until which clients may get it."""

    url: str | None = field(repr=False)
    fresh_until: float = inf


class LocationSigner:
    """Creator and cache of signed URLs of segments. Thread-safe.

    A URL stops working when the credentials that signed it expire, even if its lifetime is longer.

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
        self._signed: TLRUCache[UUID, SignedLocation] = TLRUCache(
            _CACHED, lambda _, signed, __: signed.fresh_until, time.monotonic
        )

    @property
    def enabled(self) -> bool:
        return self._lifetime_seconds > 0

    def sign(self, segment: RemoteLogSegment) -> SignedLocation:
        """Return a signed URL of the segment's log file, or None as URL if signing is off or the storage cannot sign.

        Raises:
            StorageError, CorruptDataError, UnsupportedDataError: signing needs the segment's manifest, which cannot be
                read.
        """
        if not self.enabled:
            return SignedLocation(None)
        with self._lock, suppress(KeyError):  # only one lookup, because an entry may expire before a second lookup
            return self._signed[segment.segment_id]
        now, left = time.monotonic(), self._fetcher.signing_seconds_left()
        url = self._fetcher.signed_location(segment, self._lifetime_seconds)
        # Other credentials may have come in between. The URL is valid at least until the earlier end.
        lifetime = min(self._lifetime_seconds, left, self._fetcher.signing_seconds_left())
        signed = SignedLocation(url, now + lifetime / 4)
        self._created.inc(url is not None)
        with self._lock:
            self._signed[segment.segment_id] = signed
        return signed
