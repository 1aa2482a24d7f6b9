"""From offsets to bytes of a segment, and where a big location may be cut.

An offset index says only between which offsets the batch at a position begins, so its header is read, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tiered_stream.errors import CorruptDataError, naming
from tiered_stream.locate.index_cache import IndexCache
from tiered_stream.model import AbortedTransaction, ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation
from tiered_stream.records.header import HEADER_SIZE, LENGTH_END, MAGIC, START
from tiered_stream.records.indexes import OffsetIndex, parse_offset_index, parse_time_index
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher


class SegmentPositions:
    """Byte ranges within segments by their offset indexes; `executor` reads batch headers side by side."""

    def __init__(self, fetcher: RemoteStorageFetcher, cache: IndexCache, executor: Executor) -> None:
        self._fetcher = fetcher
        self._cache = cache
        self._executor = executor

    def location(self, segment: RemoteLogSegment, wanted: OffsetRange) -> SegmentLocation:
        """The bytes in which the batches with `wanted` begin and end; no request where the whole segment is wanted.

        Raises:
            StorageError: the offset index cannot be had.
            CorruptDataError: it does not have its format; the message names the segment.
        """
        if wanted.start <= segment.base_offset and wanted.end > segment.end_offset:
            return SegmentLocation(segment, wanted, ByteRange(0, segment.size))
        index = self._offset_index(segment)
        start = index.start_position(wanted.start)
        end = max(start, index.end_position(wanted.end, segment.size))
        following = index.following(end) if start < end < segment.size else None
        return SegmentLocation(segment, wanted, ByteRange(start, end), following=following)

    def since(self, location: SegmentLocation, timestamp: int) -> SegmentLocation | None:
        """`location` from a batch on before which no record is at or after `timestamp` (ms); None: none of it is.

        Raises: as `location`.
        """
        segment = location.segment
        data = self._cache.get(segment, (IndexType.TIMESTAMP,)).get(IndexType.TIMESTAMP, b"")
        with naming(segment):
            # To the end of the batch that has this offset, no record is newer than `timestamp` less one.
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
        """`location` in parts of about `target_bytes`, each beginning with a batch: together, exactly it.

        Raises: as `byte_range`.
        """
        if len(location.bytes) <= target_bytes:
            return [location]
        index = self._offset_index(location.segment)
        entries = self._entries(location, index, target_bytes)
        headers = self._executor.map(lambda entry: self._base_offset(location.segment, index, entry), entries)
        edges = [
            (location.offsets.start, location.bytes.start, None),
            *(
                (base_offset, position, (index.following(position)[0], base_offset))
                for position, base_offset in zip(index.positions[entries].tolist(), headers, strict=True)
                if base_offset is not None and location.offsets.start < base_offset < location.offsets.end
            ),
            (location.offsets.end, location.bytes.end, location.following),
        ]
        return [
            replace(
                location,
                offsets=OffsetRange(start, end),
                bytes=ByteRange(first_byte, end_byte),
                aborted_transactions=touching(location.aborted_transactions, start, end),
                following=following,
            )
            for (start, first_byte, _), (end, end_byte, following) in pairwise(edges)
        ]

    def _offset_index(self, segment: RemoteLogSegment) -> OffsetIndex:
        data = self._cache.get(segment, (IndexType.OFFSET,)).get(IndexType.OFFSET, b"")
        with naming(segment):
            return parse_offset_index(data, segment.base_offset, segment.size)

    def _entries(self, location: SegmentLocation, index: OffsetIndex, target_bytes: int) -> list[int]:
        """Index entries to cut at: the first at or after the start of each range that the layout likes to request."""
        # Far more ranges than entries would give no more parts.
        target_bytes = max(target_bytes, len(location.bytes) // (8 * len(index.positions) + 1))
        ranges = self._fetcher.request_ranges(location.segment, location.bytes, target_bytes)
        starts = [candidate.start for candidate in ranges if candidate.start > location.bytes.start]
        entries = np.unique(np.searchsorted(index.positions, starts))
        found: list[int] = entries[entries < np.searchsorted(index.positions, location.bytes.end)].tolist()
        return found

    def _base_offset(self, segment: RemoteLogSegment, index: OffsetIndex, entry: int) -> int | None:
        """The base offset of the batch at an index entry; None where the batch's format does not tell it."""
        position, last = int(index.positions[entry]), int(index.offsets[entry])
        after = int(index.offsets[entry - 1]) if entry else segment.base_offset - 1
        end = min(position + HEADER_SIZE, segment.size)
        header = self._fetcher.fetch_log_segment(segment, position, end)
        where = f"{segment}: the batch at byte {position}"
        if len(header) < START.size:
            raise CorruptDataError(f"{where} breaks off after {len(header)} bytes")
        base_offset, length, magic = START.unpack_from(header)
        if magic < MAGIC:
            return None
        if not after < base_offset <= last:
            raise CorruptDataError(f"{where} begins at offset {base_offset}, its index says {after + 1} to {last}")
        if length < HEADER_SIZE - LENGTH_END or position + LENGTH_END + length > segment.size:
            raise CorruptDataError(f"{where} has {length} bytes in a segment of {segment.size}")
        return int(base_offset)


def touching(transactions: Sequence[AbortedTransaction], start: int, end: int) -> tuple[AbortedTransaction, ...]:
    """Those with an offset from `start` (inclusive) to `end` (exclusive)."""
    if not transactions:
        return ()
    return tuple(t for t in transactions if t.first_offset < end and t.last_offset >= start)
