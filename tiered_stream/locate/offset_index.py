"""Parser of offset indexes, and searches in them: for the bytes of offsets, and for offsets at which to cut a segment.

An offset index (Kafka: `OffsetIndex`) has 8 bytes an entry, big-endian, sparse, both fields strictly ascending:

    relative offset   int32   last offset of the batches appended together, minus the segment's base offset
    position          int32   byte position in the segment at which the first of those batches begins

So records before an entry's position have smaller offsets than the entry. The batch at the position begins at the
entry's offset or before. Another batch begins at the entry's offset + 1. Its position is only known to lie between the
positions of this entry and the next entry. So two parts of a segment that meet at the entry's offset + 1 both read the
bytes between these positions. The decoder returns for each part only the records at the part's offsets.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from uuid import UUID

import numpy as np
from cachetools import LRUCache

from tiered_stream.errors import naming
from tiered_stream.locate.index_files import (
    IndexCache,
    check_entries,
    parse_time_index,
    read_entries,
    without_trailing_zeros,
)
from tiered_stream.locate.locator import SegmentShare
from tiered_stream.locate.segment_columns import Int64s
from tiered_stream.locate.visible_segments import VisibleSegment
from tiered_stream.model import ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation
from tiered_stream.options.types import LONG_MAX
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])

_MAX_REMEMBERED = 1 << 15
"""Maximum number of locations that `SegmentPositions.end_of` keeps.

The plan of the micro-batch asks for these locations next. Their segments may be more than the index cache can hold.
"""


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """Offset index of one segment: parallel arrays of absolute `offsets` and byte `positions`, both ascending."""

    offsets: Int64s
    positions: Int64s

    def start_position(self, offset: int) -> int:
        """Return the byte position at which the batch with `offset`, or an earlier batch, begins.

        It is the position of the last entry whose offset is at most `offset`, as in Kafka's `OffsetIndex.lookup`.
        Without such an entry, it is 0.
        """
        entry = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return int(self.positions[entry]) if entry >= 0 else 0

    def end_position(self, end: int, segment_size: int) -> int:
        """Return a byte position after all batches that have an offset below `end`, at most `segment_size`."""
        entry = int(np.searchsorted(self.offsets, end - 1, side="left")) + 1
        return int(self.positions[entry]) if entry < len(self.positions) else segment_size

    def following(self, position: int) -> tuple[int, int]:
        """Return the lowest and the highest possible first offset of the batch that begins at the byte `position`.

        `position` must be the position of an entry.
        """
        entry = int(np.searchsorted(self.positions, position, side="left"))
        return int(self.offsets[entry - 1]) + 1 if entry else 0, int(self.offsets[entry])


def parse_offset_index(data: bytes, base_offset: int, segment_size: int) -> OffsetIndex:
    """Parse the bytes of the offset index of a segment that begins at `base_offset` and has `segment_size` bytes.

    Raises:
        CorruptDataError: entries are cut short, out of order or outside the segment.
    """
    entries = without_trailing_zeros(read_entries(data, _OFFSET_ENTRY, "offset index"))
    offsets, positions = entries["offset"].astype(np.int64), entries["position"].astype(np.int64)
    if len(entries):
        check_entries(
            "offset index",
            ("an offset below the segment's base offset", offsets < 0),
            ("an offset beyond 64 bits", offsets > LONG_MAX - base_offset),
            ("offsets that do not ascend", np.diff(offsets) <= 0),
            ("positions that do not ascend", np.diff(positions) <= 0),
            (
                f"positions {positions[0]} to {positions[-1]} in a segment of {segment_size} bytes",
                (positions < 0) | (positions >= segment_size),
            ),
        )
    return OffsetIndex(offsets + base_offset, positions)


class SegmentPositions:
    """Finder of the byte range of given offsets in a segment, by the segment's offset index. It is thread-safe."""

    def __init__(self, fetcher: RemoteStorageFetcher, cache: IndexCache) -> None:
        self._fetcher = fetcher
        self._cache = cache
        self._lock = threading.Lock()
        self._remembered: LRUCache[tuple[UUID, OffsetRange], SegmentLocation] = LRUCache(_MAX_REMEMBERED)

    def location(self, segment: RemoteLogSegment, offsets: OffsetRange) -> SegmentLocation:
        """Return the location of `offsets` in the segment: the byte range that holds their records.

        The offset index is read only if `offsets` do not cover the whole segment.

        Raises:
            StorageError: the offset index cannot be read.
            CorruptDataError: the offset index is malformed; the message names the segment.
        """
        if offsets.start <= segment.base_offset and offsets.end > segment.end_offset:
            return SegmentLocation(segment, offsets, ByteRange(0, segment.size))
        with self._lock:
            known = self._remembered.get((segment.segment_id, offsets))
        return known or _location(segment, offsets, self._offset_index(segment))

    def end_of(self, share: SegmentShare) -> int:
        """Return an end offset (exclusive) before which about `share.bytes` bytes of the segment lie.

        The bytes are counted from the start of `share.offsets`. The result is at most the end of `share.offsets`. At
        least one batch of `share.offsets` lies before the result. The location of the offsets before the result is
        kept, so that `location` returns it without reading the index again. The errors are described at `location`.
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
        """Return `location` without the first batches that the time index shows to be older than `timestamp` (ms).

        Return None if all batches of the location are older.
        """
        segment = location.segment
        parse = partial(parse_time_index, base_offset=segment.base_offset)
        times = self._cache.parsed(segment, IndexType.TIMESTAMP, parse)
        # Up to the end of the batch with this offset, no record is newer than `timestamp - 1`.
        start = times.floor_offset(timestamp - 1)
        if start <= location.offsets.start:
            return location
        if start >= location.offsets.end:
            return None
        rest = self.location(segment, OffsetRange(start, location.offsets.end))
        return location.part(rest.offsets, ByteRange(rest.bytes.start, location.bytes.end), location.following)

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        """Cut `location` where batches begin into parts of about `target_bytes` bytes, and return the parts.

        Together, the parts have exactly the location's offsets. Adjacent parts share the bytes of one interval of the
        offset index. A location of at most `target_bytes` bytes stays whole.
        """
        if len(location.bytes) <= target_bytes:
            return [location]
        index = self._offset_index(location.segment)
        return _parts(location, index, self._cut_offsets(location, index, target_bytes))

    def cut_at(self, location: SegmentLocation, offsets: Sequence[int]) -> Sequence[SegmentLocation]:
        """Cut `location` at the ascending `offsets` inside it, and return the parts.

        Each of the offsets is the first offset of a part. Adjacent parts share the bytes of one interval of the offset
        index.
        """
        return _parts(location, self._offset_index(location.segment), offsets)

    def _offset_index(self, segment: RemoteLogSegment) -> OffsetIndex:
        parse = partial(parse_offset_index, base_offset=segment.base_offset, segment_size=segment.size)
        return self._cache.parsed(segment, IndexType.OFFSET, parse)

    def _cut_offsets(self, location: SegmentLocation, index: OffsetIndex, target_bytes: int) -> list[int]:
        """Return the offsets at which to cut `location` into parts of about `target_bytes`.

        The fetcher proposes byte ranges that suit the storage's layout. Each returned offset follows the first index
        entry at or after the start of a proposed range, and lies inside the location.
        """
        # Far more ranges than index entries would not give more parts.
        target_bytes = max(target_bytes, len(location.bytes) // (8 * len(index.positions) + 1))
        ranges = self._fetcher.request_ranges(location.segment, location.bytes, target_bytes)
        starts = [candidate.start for candidate in ranges if candidate.start > location.bytes.start]
        entries = np.unique(np.searchsorted(index.positions, starts))
        offsets: list[int] = (index.offsets[entries[entries < len(index.positions)]] + 1).tolist()
        return [offset for offset in offsets if location.offsets.start < offset < location.offsets.end]


def _location(segment: RemoteLogSegment, offsets: OffsetRange, index: OffsetIndex) -> SegmentLocation:
    """Return the location of `offsets` with the smallest byte range that, by the index, holds all of them."""
    start = index.start_position(offsets.start)
    end = max(start, index.end_position(offsets.end, segment.size))
    following = index.following(end) if start < end < segment.size else None
    return SegmentLocation(segment, offsets, ByteRange(start, end), following=following)


def _parts(location: SegmentLocation, index: OffsetIndex, starts: Sequence[int]) -> list[SegmentLocation]:
    """Cut `location` at the ascending offsets `starts` inside it, and return the parts.

    The byte ranges of the parts lie within the byte range of the location.
    """
    whole, parts = location.bytes, []
    for start, end in pairwise((location.offsets.start, *starts, location.offsets.end)):
        part = _location(location.segment, OffsetRange(start, end), index)
        first = whole.start if start == location.offsets.start else max(whole.start, part.bytes.start)
        last = whole.end if end == location.offsets.end else min(whole.end, part.bytes.end)
        following = location.following if last == whole.end else part.following
        parts.append(location.part(part.offsets, ByteRange(first, last), following))
    return parts


def search_start(fetcher: RemoteStorageFetcher, part: VisibleSegment, timestamp: int) -> int:
    """Return the byte position of a batch such that all visible records before it are older than `timestamp` (ms).

    The visible records are the records of the segment at `part.offsets`.

    Raises:
        StorageError: the offset index or the time index cannot be read.
        CorruptDataError: the offset index or the time index is malformed; the message names the segment.
    """
    segment = part.segment
    indexes = fetcher.fetch_indexes(segment, (IndexType.OFFSET, IndexType.TIMESTAMP))
    with naming(segment):
        times = parse_time_index(indexes.get(IndexType.TIMESTAMP, b""), segment.base_offset)
        positions = parse_offset_index(indexes.get(IndexType.OFFSET, b""), segment.base_offset, segment.size)
    return positions.start_position(max(times.floor_offset(timestamp), part.offsets.start))
