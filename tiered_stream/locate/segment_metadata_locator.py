"""Base class of locators that know segments' metadata, and get byte positions from the segments' offset indexes."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from tiered_stream.errors import StorageError
from tiered_stream.locate.aborted_transactions import find_aborted
from tiered_stream.locate.index_files import DEFAULT_CACHE_BYTES, IndexCache
from tiered_stream.locate.locator import Locator, SegmentFilter, SegmentShare, every_segment
from tiered_stream.locate.offset_index import SegmentPositions
from tiered_stream.locate.storage_failures import SegmentsLeftOut, UnreachableCount
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import (
    AbortedTransaction,
    ByteRange,
    OffsetRange,
    PartitionLocations,
    PartitionRanges,
    SegmentLocation,
    TopicPartition,
    touching,
)
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.process.heap_and_gc import collection_paused
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

INDEX_REQUESTS_IN_FLIGHT = 16

T = TypeVar("T")

_Cut = Callable[[], Sequence[SegmentLocation]]

_Located = tuple[SegmentLocation, int | None]
"""Pair of a location and a seam.

If transactions of the location may still be open where the tiered segments end or a gap between them begins, the seam
is this offset. The seam is None if the tiered segments show how all transactions of the location ended.
"""


class SegmentMetadataLocator(Locator):
    """Locator that knows segments by their metadata, and finds byte ranges by offset indexes in the storage.

    A subclass provides the metadata, and the aborted transactions whose abort markers are not in tiered segments.

    Args:
        cache_bytes: maximum size in bytes of the cached indexes.
        falls_back: the brokers serve a segment if the storage does not return its index; if false, the error is raised.
    """

    def __init__(
        self,
        fetcher: RemoteStorageFetcher,
        isolation: IsolationLevel,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        *,
        falls_back: bool = False,
    ) -> None:
        self.falls_back = falls_back
        self._fetcher = fetcher
        self.committed = isolation is IsolationLevel.READ_COMMITTED
        self.executor = ThreadPoolExecutor(INDEX_REQUESTS_IN_FLIGHT, thread_name_prefix="locate")
        self._cache = IndexCache(fetcher, cache_bytes)
        self._positions = SegmentPositions(fetcher, self._cache)
        self._unreachable = UnreachableCount()
        """Failures to reach the storage since the last call of `locate`, which is the first call for a micro-batch."""

    @abstractmethod
    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        """Return by partition the tiered segments whose records belong to the partition's current log.

        Partitions without known segments may be left out.
        """

    def _remember_visible(self, visible: Mapping[TopicPartition, VisibleSegments]) -> None:
        """Keep `visible`, by which the end of a micro-batch was chosen, so that `_recently_visible` can return it.

        The implementation in this class keeps nothing.
        """

    def _recently_visible(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        """Return by partition the visible segments that `_remember_visible` has kept for the same micro-batch.

        If `_remember_visible` has kept none, return the result of `visible_of`. The implementation in this class always
        returns the result of `visible_of`.
        """
        return self.visible_of(partitions)

    @abstractmethod
    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        """Return the aborted transactions that have records before and after a seam, by seam.

        A seam is a pair of a partition and an offset. At this offset, the partition's tiered segments end, or a gap
        between them begins, and transactions of earlier records may still be open.

        If a transaction's last offset is unknown, its `last_offset` in the result is any offset at or after the seam.
        If the result lacks a seam, `locate` returns none of the locations whose transactions may be open at the seam.
        The offsets of these locations are then read from the brokers.
        """

    def _prefetch_aborted(self, seams: Mapping[TopicPartition, int]) -> None:
        """Request and cache the aborted transactions that have records before and after the offsets in `seams`.

        `seams` has by partition the offset at which the tiered segments end, or a gap between them begins, while
        transactions may be open. All partitions are requested together. `_aborted_across` then finds the transactions
        in the cache. The implementation in this class does nothing.
        """

    @collection_paused()
    def find_locations(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        self._unreachable = UnreachableCount()
        visible = self._recently_visible([partition for partition, offsets in ranges.items() if len(offsets)])
        parts = {
            partition: overlapping(visible[partition], offsets)
            for partition, offsets in ranges.items()
            if partition in visible
        }
        located = self._locate_parts(visible, parts, ranges, needed)
        seam_offsets = {
            partition: {seam for _, seam in pairs if seam is not None} for partition, pairs in located.items()
        }
        seams = [(partition, seam) for partition, offsets in seam_offsets.items() for seam in offsets]
        across = self._aborted_across(seams) if seams else {}
        locations: PartitionLocations = dict.fromkeys(ranges, ())
        for partition, pairs in located.items():
            aborted: dict[int | None, Sequence[AbortedTransaction] | None] = {None: ()}
            aborted.update({seam: across.get((partition, seam)) for seam in seam_offsets[partition]})
            locations[partition] = tuple(
                with_aborted(location, transactions) if transactions else location
                for location, seam in pairs
                if (transactions := aborted[seam]) is not None
            )
        return locations

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """Return each location without the first batches that are older than `timestamp` (ms).

        The segments' time indexes show which batches are older (see `Locator.since_all`). The indexes are read in
        parallel. If the storage fails and `falls_back` is true, the location is returned unchanged.
        """

        def since(location: SegmentLocation) -> SegmentLocation | None:
            whole: SegmentLocation | None = location
            work = partial(self._positions.since, location, timestamp)
            return self._unless_storage_fails(location, work, whole, "is read from its start")

        return list(self.executor.map(since, locations))

    @collection_paused()
    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, VisibleSegments]:
        visible = self.visible_of([partition for partition, offsets in ranges.items() if len(offsets)])
        self._remember_visible(visible)
        return {
            partition: segments[parts.start : parts.stop]
            for partition, offsets in ranges.items()
            for segments in [visible.get(partition, VisibleSegments())]
            for parts in [overlapping(segments, offsets)]
        }

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return by partition an end offset (exclusive): about `SegmentShare.bytes` bytes of its segment lie before it.

        See `Locator.ends_inside`. The offsets come from the segments' offset indexes, which are read in parallel. If
        the storage fails and `falls_back` is true, the partition is left out of the result.
        """
        shared = {partition: [VisibleSegment(share.segment, share.offsets)] for partition, share in shares.items()}
        # `locate` has the same failures later, and logs them.
        left_out = SegmentsLeftOut(self._fetcher, shared, UnreachableCount(), falls_back=self.falls_back)

        def end_of(share: SegmentShare) -> int | None:
            return left_out.attempt(share.segment, partial(self._positions.end_of, share))

        ends = zip(shares, self.executor.map(end_of, shares.values()), strict=True)
        return {partition: end for partition, end in ends if end is not None}

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        """Cut `location` where batches begin into parts of about `target_bytes` bytes, and return the parts.

        If the storage fails and `falls_back` is true, return only `location` itself.
        """
        return self._cut(location, partial(self._positions.cut, location, target_bytes))

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """Cut each location into parts of about the given size in bytes (see `Locator.cut_all`).

        `cuts` has pairs of a location and a size. The offset indexes are read in parallel. If the storage fails and
        `falls_back` is true, the location stays whole.
        """
        return self._cut_each([(location, partial(self._positions.cut, location, size)) for location, size in cuts])

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Cut each location at the given offsets, and return each location's parts (see `Locator.cut_at`).

        `cuts` has pairs of a location and offsets. The offset indexes are read in parallel. If the storage fails and
        `falls_back` is true, the location stays whole.
        """
        return self._cut_each([(location, partial(self._positions.cut_at, location, at)) for location, at in cuts])

    def _cut_each(self, cuts: Sequence[tuple[SegmentLocation, _Cut]]) -> list[Sequence[SegmentLocation]]:
        """Return the parts of each location, in the same order; the cuts run in parallel."""
        return list(self.executor.map(lambda cut: self._cut(*cut), cuts))

    def _cut(self, location: SegmentLocation, work: _Cut) -> Sequence[SegmentLocation]:
        return self._unless_storage_fails(location, work, [location], "stays in one split")

    def _unless_storage_fails(self, location: SegmentLocation, work: Callable[[], T], otherwise: T, effect: str) -> T:
        """Return the result of `work`. If `work` raises a StorageError and `falls_back` is true, return `otherwise`.

        `work` is not called, and `otherwise` is returned, if 16 requests since the last call of `locate` did not reach
        the storage. `effect` is the end of the log line about a failure. It says what happens to the location's
        segment.
        """
        unreachable = self._unreachable
        if unreachable.is_full:
            return otherwise
        try:
            return work()
        except StorageError as error:
            if not self.falls_back:
                raise
            unreachable.add(error)
            log.warning("segment %s %s: %s", location.segment.segment_id, effect, error)
            return otherwise

    def prefetch(self, visible: Mapping[TopicPartition, VisibleSegments], ranges: PartitionRanges) -> None:
        """Request and cache the aborted transactions that calls of `location` for the offset ranges `ranges` will need.

        All partitions are requested together, each only for the last segment in its range. Errors of brokers are
        ignored, because `location` requests transactions that are not in the cache.

        Args:
            visible: by partition, the segments whose records belong to the partition's log.
        """
        seams = {}
        for partition, offsets in ranges.items():
            for at in overlapping(visible[partition], offsets)[-1:]:
                _, seam = self._whole_location(
                    visible[partition], at, visible[partition][at], offsets, every_segment
                ) or (None, None)
                if seam is not None:
                    seams[partition] = seam
        self._prefetch_aborted(seams)

    def location(self, visible: VisibleSegments, at: int, offsets: OffsetRange, *, committed: bool) -> SegmentLocation:
        """Return the location of `offsets`, which lie in the segment `visible[at]`.

        If `committed` is true, the location has the aborted transactions that touch its offsets.

        Raises:
            StorageError: an index cannot be read from the storage.
            CorruptDataError, UnsupportedDataError: an index is malformed.
            BrokerError: the aborted transactions cannot be requested from the brokers.
        """
        part = visible[at]
        segment = part.segment
        if not committed:
            return self._positions.location(segment, offsets)
        whole = self._whole_location(visible, at, part, offsets, every_segment)
        location, seam_offset = whole or self._locate_part(visible, at, offsets)
        if seam_offset is None:
            return location
        seam = segment.topic_partition, seam_offset
        return with_aborted(location, self._aborted_across([seam])[seam])

    def close(self) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)

    def _locate_parts(
        self,
        visible: Mapping[TopicPartition, VisibleSegments],
        parts: Mapping[TopicPartition, range],
        ranges: PartitionRanges,
        needed: SegmentFilter,
    ) -> dict[TopicPartition, list[_Located]]:
        """Return by partition the locations and seams (`_Located`) of the segments at the indexes `parts` in `visible`.

        Locations have only offsets in `ranges`. Index files are read in parallel, for segments that need them. If the
        storage does not return a segment's index and `falls_back` is true, the segment is left out.
        """
        left_out = SegmentsLeftOut(self._fetcher, visible, self._unreachable, falls_back=self.falls_back)

        def locate(item: tuple[TopicPartition, int]) -> _Located | None:
            partition, index = item
            at = parts[partition][index]
            work = partial(self._locate_part, visible[partition], at, ranges[partition])
            return left_out.attempt(visible[partition][at].segment, work)

        located = {
            partition: [
                self._whole_location(visible[partition], at, part, ranges[partition], needed)
                for at, part in zip(indexes, visible[partition][indexes.start : indexes.stop], strict=True)
            ]
            for partition, indexes in parts.items()
        }
        unknown = [
            (partition, index)
            for partition, pairs in located.items()
            for index, pair in enumerate(pairs)
            if pair is None
        ]
        for (partition, index), pair in zip(unknown, self.executor.map(locate, unknown), strict=True):
            located[partition][index] = pair
        left_out.report()
        return {partition: [pair for pair in pairs if pair is not None] for partition, pairs in located.items()}

    def _whole_location(
        self, visible: VisibleSegments, at: int, part: VisibleSegment, offsets: OffsetRange, needed: SegmentFilter
    ) -> _Located | None:
        """Return the location and seam (`_Located`) of `part`, which is `visible[at]`, without reading an index.

        The result is None if an index is needed, because `offsets` do not cover the whole segment, or because aborted
        transactions must be searched for. If `needed` is false for the segment, its location has the right offsets and
        no bytes.
        """
        if not needed(part.segment):
            return SegmentLocation(part.segment, offsets.intersect(part.offsets), ByteRange(0, 0)), None
        if offsets.intersect(part.offsets) != part.segment.offsets:
            return None
        stop = visible.next_stop(at) if self.committed else None
        if stop is not None and not visible[stop].segment.transaction_index_empty:
            return None
        # Up to the stop, no segment has a transaction index: a search would find nothing, and end after the stop.
        return self._location_of(visible, part, at, offsets), None if stop is None else int(visible.ends[stop])

    def _location_of(
        self, visible: VisibleSegments, part: VisibleSegment, at: int, offsets: OffsetRange
    ) -> SegmentLocation:
        """Return the location of the offsets that are in `offsets` and in `part`, which is `visible[at]`.

        The location has no aborted transactions.
        """
        location = self._positions.location(part.segment, offsets.intersect(part.offsets))
        if location.bytes.end == part.segment.size and at in visible.overlapped:
            # If the log of this segment ends too early, records of the next one must not replace the missing records.
            return replace(location, following=(part.offsets.end, part.segment.end_offset + 1))
        return location

    def _locate_part(self, visible: VisibleSegments, at: int, offsets: OffsetRange) -> _Located:
        location = self._location_of(visible, visible[at], at, offsets)
        if not self.committed:
            return location, None
        search = find_aborted(visible, at, location.offsets, self._cache)
        return with_aborted(location, search.transactions), search.seam


def overlapping(visible: VisibleSegments, offsets: OffsetRange) -> range:
    """Return the indexes of the entries in `visible` whose offsets overlap `offsets`."""
    if not len(offsets):
        return range(0)
    first = np.searchsorted(visible.ends, offsets.start, side="right")
    return range(int(first), int(np.searchsorted(visible.starts, offsets.end)))


def with_aborted(location: SegmentLocation, beyond: Sequence[AbortedTransaction]) -> SegmentLocation:
    """Return `location` with the transactions in `beyond` that touch its offsets added to its aborted transactions."""
    touched = touching(beyond, location.offsets.start, location.offsets.end)
    if not touched:
        return location
    return replace(location, aborted_transactions=tuple(sorted({*location.aborted_transactions, *touched})))
