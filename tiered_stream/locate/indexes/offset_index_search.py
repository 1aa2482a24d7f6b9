"""Maps offsets to bytes of a segment, and finds where a large location can be cut, by the offset index alone.

An index entry gives the last offset of the batches that begin at its position. So another batch begins at offset + 1,
but its byte position is only known to lie between this entry's position and the next entry's. Two parts that meet at
that offset both read this interval, and the decoder returns each part's own records.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import numpy as np
from cachetools import LRUCache

from tiered_stream.errors import naming
from tiered_stream.locate.indexes.index_cache import IndexCache
from tiered_stream.locate.indexes.index_files import OffsetIndex, parse_offset_index, parse_time_index
from tiered_stream.locate.locator import SegmentShare
from tiered_stream.model import ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation, touching
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

_REMEMBERED = 1 << 15
"""Number of remembered locations that end at an offset chosen by `end_of`.

The plan locates them next, possibly in more segments than the index cache holds.
"""


class SegmentPositions:
    """Finds byte ranges within segments by their offset indexes; many threads may use it."""

    def __init__(self, fetcher: RemoteStorageFetcher, cache: IndexCache) -> None:
        self._fetcher = fetcher
        self._cache = cache
        self._lock = threading.Lock()
        self._remembered: LRUCache[tuple[UUID, OffsetRange], SegmentLocation] = LRUCache(_REMEMBERED)

    def location(self, segment: RemoteLogSegment, wanted: OffsetRange) -> SegmentLocation:
        """Return the bytes in which the batches with `wanted` begin and end; a whole segment needs no request.

        Raises:
            StorageError: the offset index cannot be read.
            CorruptDataError: the offset index is malformed; the message names the segment.
        """
        if wanted.start <= segment.base_offset and wanted.end > segment.end_offset:
            return SegmentLocation(segment, wanted, ByteRange(0, segment.size))
        with self._lock:
            known = self._remembered.get((segment.segment_id, wanted))
        return known or _location(segment, wanted, self._offset_index(segment))

    def end_of(self, share: SegmentShare) -> int:
        """Return the offset after about `share.bytes` of the share's offsets, and after at least one batch of them.

        Raises: the errors of `location`.
        """
        segment, offsets = share.segment, share.offsets
        index = self._offset_index(segment)
        until = index.start_position(offsets.start) + share.bytes
        # Offsets up to an entry's offset need the bytes up to the next entry's position.
        fitting = int(np.searchsorted(index.positions, until, side="right")) - 2
        entry = max(fitting, int(np.searchsorted(index.offsets, offsets.start, side="left")))
        whole = until >= segment.size or entry >= len(index.offsets)
        end = offsets.end if whole else min(offsets.end, int(index.offsets[entry]) + 1)
        chosen = OffsetRange(offsets.start, end)
        with self._lock:
            self._remembered[segment.segment_id, chosen] = _location(segment, chosen, index)
        return end

    def since(self, location: SegmentLocation, timestamp: int) -> SegmentLocation | None:
        """Return `location` without leading batches of records older than `timestamp` (ms); None if nothing is left.

        Raises: the errors of `location`.
        """
        segment = location.segment
        data = self._cache.get(segment, (IndexType.TIMESTAMP,)).get(IndexType.TIMESTAMP, b"")
        with naming(segment):
            # Up to the end of the batch with this offset, no record is newer than `timestamp - 1`.
            start = parse_time_index(data, segment.base_offset).floor_offset(timestamp - 1)
        if start <= location.offsets.start:
            return location
        if start >= location.offsets.end:
            return None
        rest = self.location(segment, OffsetRange(start, location.offsets.end))
        return replace(
            location,
            offsets=rest.offsets,
            bytes=ByteRange(rest.bytes.start, location.bytes.end),
            aborted_transactions=touching(location.aborted_transactions, start, location.offsets.end),
        )

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        """Cut `location` where batches begin, into parts of about `target_bytes` that have exactly its offsets.

        Adjacent parts share the bytes of one interval of the offset index.

        Raises: the errors of `location`.
        """
        if len(location.bytes) <= target_bytes:
            return [location]
        index = self._offset_index(location.segment)
        return _parts(location, index, self._places(location, index, target_bytes))

    def cut_at(self, location: SegmentLocation, offsets: Sequence[int]) -> Sequence[SegmentLocation]:
        """Cut `location` at the given ascending offsets that lie inside it; parts share bytes as those of `cut` do."""
        inside = [each for each in offsets if location.offsets.start < each < location.offsets.end]
        return _parts(location, self._offset_index(location.segment), inside) if inside else [location]

    def _offset_index(self, segment: RemoteLogSegment) -> OffsetIndex:
        data = self._cache.get(segment, (IndexType.OFFSET,)).get(IndexType.OFFSET, b"")
        with naming(segment):
            return parse_offset_index(data, segment.base_offset, segment.size)

    def _places(self, location: SegmentLocation, index: OffsetIndex, target_bytes: int) -> list[int]:
        """Return offsets to cut at, by the first entry at or after the start of each range that the layout prefers."""
        # Far more ranges than index entries would not give more parts.
        target_bytes = max(target_bytes, len(location.bytes) // (8 * len(index.positions) + 1))
        ranges = self._fetcher.request_ranges(location.segment, location.bytes, target_bytes)
        starts = [candidate.start for candidate in ranges if candidate.start > location.bytes.start]
        entries = np.unique(np.searchsorted(index.positions, starts))
        after: list[int] = (index.offsets[entries[entries < len(index.positions)]] + 1).tolist()
        return [each for each in after if location.offsets.start < each < location.offsets.end]


def _location(segment: RemoteLogSegment, wanted: OffsetRange, index: OffsetIndex) -> SegmentLocation:
    start = index.start_position(wanted.start)
    end = max(start, index.end_position(wanted.end, segment.size))
    following = index.following(end) if start < end < segment.size else None
    return SegmentLocation(segment, wanted, ByteRange(start, end), following=following)


def _parts(location: SegmentLocation, index: OffsetIndex, starts: Sequence[int]) -> list[SegmentLocation]:
    """Cut a location at `starts` (ascending, inside it); the bytes of each part lie within the location's bytes."""
    whole, parts = location.bytes, []
    for start, end in pairwise((location.offsets.start, *starts, location.offsets.end)):
        part = _location(location.segment, OffsetRange(start, end), index)
        first = whole.start if start == location.offsets.start else max(whole.start, part.bytes.start)
        last = whole.end if end == location.offsets.end else min(whole.end, part.bytes.end)
        parts.append(
            replace(
                location,
                offsets=part.offsets,
                bytes=ByteRange(first, last),
                aborted_transactions=touching(location.aborted_transactions, start, end),
                following=location.following if last == whole.end else part.following,
            )
        )
    return parts
