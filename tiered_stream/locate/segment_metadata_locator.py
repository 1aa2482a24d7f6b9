"""Base class of the locators that know the metadata of segments: it turns visible segments into locations."""

from __future__ import annotations

import logging
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tiered_stream.errors import StorageError
from tiered_stream.locate.aborted_transactions import find_aborted
from tiered_stream.locate.fallback import SegmentsLeftOut
from tiered_stream.locate.indexes.index_cache import DEFAULT_CACHE_BYTES, IndexCache
from tiered_stream.locate.indexes.offset_index import SegmentPositions
from tiered_stream.locate.lineage import VisibleSegment, VisibleSegments
from tiered_stream.locate.locator import Locator, SegmentFilter, SegmentShare, every_segment
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

_Located = tuple[SegmentLocation, int | None]
"""Location, and the seam at which transactions of its offsets are still undecided; None: all are decided."""


class SegmentMetadataLocator(Locator):
    """Locator by segment metadata; a subclass provides the metadata, and the aborted transactions beyond the tier.

    Args:
        cache_bytes: maximum size of the cached indexes.
        falls_back: leave a segment to the brokers if the storage does not give its index.
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

    @abstractmethod
    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        """Return by partition the segments that count; partitions without known segments may be left out."""

    def _remember_visible(self, visible: Mapping[TopicPartition, VisibleSegments]) -> None:
        """Keep the segments by which a micro-batch's end is chosen, for `_recently_visible`; the base keeps none."""

    def _recently_visible(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        """Return what `visible_of` returns, or what `_remember_visible` has kept recently."""
        return self.visible_of(partitions)

    @abstractmethod
    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        """Return by seam (partition and offset) the aborted transactions with records on both sides of the offset.

        The last offset of a transaction may be any offset from the seam on, if it is unknown. If a seam is missing in
        the result, the locations that need its transactions are left to the brokers.
        """

    def _prefetch_aborted(self, seams: Mapping[TopicPartition, int]) -> None:
        """Request what `_aborted_across` returns for these seams together, and keep it; does nothing by default."""

    @collection_paused()
    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
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

    def since(self, location: SegmentLocation, timestamp: int) -> SegmentLocation | None:
        """Return what `since_all` returns for one location."""
        whole: SegmentLocation | None = location
        work = partial(self._positions.since, location, timestamp)
        return self._unless_storage_fails(location, work, whole, "is read from its start")

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """Return each location without its older batches, in parallel, because each location needs indexes."""
        return list(self.executor.map(lambda location: self.since(location, timestamp), locations))

    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        visible = self.visible_of([partition for partition, offsets in ranges.items() if len(offsets)])
        self._remember_visible(visible)
        return {
            partition: tuple(segments[at] for at in overlapping(segments, offsets))
            for partition, offsets in ranges.items()
            for segments in [visible.get(partition, VisibleSegments())]
        }

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return the end offset of each share by the offset indexes, in parallel; send no request to brokers."""
        shared = {partition: [VisibleSegment(share.segment, share.offsets)] for partition, share in shares.items()}
        # `locate` has the same failures later, and logs them.
        left_out = SegmentsLeftOut(self._fetcher, shared, falls_back=self.falls_back)

        def end_of(share: SegmentShare) -> int | None:
            return left_out.attempt(share.segment, partial(self._positions.end_of, share))

        ends = zip(shares, self.executor.map(end_of, shares.values()), strict=True)
        return {partition: end for partition, end in ends if end is not None}

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        """Return what `cut_all` returns for one location."""
        return self._cut(location, partial(self._positions.cut, location, target_bytes))

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """Return the parts of all locations, cut in parallel, because each cut needs an index."""
        return list(self.executor.map(lambda cut: self.cut(*cut), cuts))

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Return the parts of all locations, cut in parallel, because each cut needs an index."""
        return list(self.executor.map(lambda cut: self._cut(cut[0], partial(self._positions.cut_at, *cut)), cuts))

    def _cut(
        self, location: SegmentLocation, work: Callable[[], Sequence[SegmentLocation]]
    ) -> Sequence[SegmentLocation]:
        return self._unless_storage_fails(location, work, [location], "stays in one split")

    def _unless_storage_fails(self, location: SegmentLocation, work: Callable[[], T], otherwise: T, effect: str) -> T:
        """Return the result of `work`, or `otherwise` if the storage fails and there are brokers to fall back to."""
        try:
            return work()
        except StorageError as error:
            if not self.falls_back:
                raise
            log.warning("segment %s %s: %s", location.segment.segment_id, effect, error)
            return otherwise

    def prefetch(self, visible: Mapping[TopicPartition, VisibleSegments], ranges: PartitionRanges) -> None:
        """Request together the aborted transactions that `location` needs at the ends of these ranges.

        Failures are ignored, because `location` requests what it does not find.
        """
        seams = {}
        for partition, offsets in ranges.items():
            for at in overlapping(visible[partition], offsets)[-1:]:
                _, seam = self._whole_location(visible[partition], at, offsets, every_segment) or (None, None)
                if seam is not None:
                    seams[partition] = seam
        self._prefetch_aborted(seams)

    def location(self, visible: VisibleSegments, at: int, offsets: OffsetRange, *, committed: bool) -> SegmentLocation:
        """Return the location of `offsets`, which lie in the segment `visible[at]`.

        It has its aborted transactions if `committed` is true.

        Raises: the errors of `locate`.
        """
        segment = visible[at].segment
        if not committed:
            return self._positions.location(segment, offsets)
        whole = self._whole_location(visible, at, offsets, every_segment)
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
        """Return by partition the locations of the segments at the positions in `parts`, with their seams.

        Segments whose indexes are needed are located in parallel. A segment is left out if the storage fails to give
        its index, and it may be left to the brokers.
        """
        left_out = SegmentsLeftOut(self._fetcher, visible, falls_back=self.falls_back)

        def locate(item: tuple[TopicPartition, int]) -> _Located | None:
            partition, index = item
            at = parts[partition][index]
            work = partial(self._locate_part, visible[partition], at, ranges[partition])
            return left_out.attempt(visible[partition][at].segment, work)

        located = {
            partition: self._whole_locations(visible[partition], parts[partition], ranges[partition], needed)
            for partition in parts
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

    def _whole_locations(
        self, visible: VisibleSegments, parts: range, offsets: OffsetRange, needed: SegmentFilter
    ) -> list[_Located | None]:
        """Return the result of `_whole_location` for each position in `parts`.

        If all segments are needed, known locations are taken as a slice of the cache, because there may be 100,000.
        """
        if needed is not every_segment:
            return [self._whole_location(visible, at, offsets, needed) for at in parts]
        located = visible.located[self.committed][parts.start : parts.stop]
        ends = {0, len(parts) - 1} if len(parts) else set()  # only these segments may be wanted in part
        for index in ends.union(index for index, pair in enumerate(located) if pair is None):
            located[index] = self._whole_location(visible, parts[index], offsets, needed)
        return located

    def _whole_location(
        self, visible: VisibleSegments, at: int, offsets: OffsetRange, needed: SegmentFilter
    ) -> _Located | None:
        """Return the location and the seam of the segment `visible[at]`, and cache them; None if an index is needed.

        No index is needed if the segment is wanted as a whole and has no aborted transactions to search for. A segment
        that is not `needed` gets a location with the right offsets and no bytes.
        """
        part = visible[at]
        if not needed(part.segment):
            return SegmentLocation(part.segment, offsets.intersect(part.offsets), ByteRange(0, 0)), None
        if offsets.start > part.offsets.start or offsets.end < part.offsets.end:
            return None
        known = visible.located[self.committed][at]
        if known is None and part.offsets == part.segment.offsets and not self._needs_index(visible, at):
            # Aborted transactions are then known from the seam to which the search would go on.
            seam = visible[visible.next_stop(at)].offsets.end if self.committed else None
            known = visible.located[self.committed][at] = self._location_of(visible, at, offsets), seam
        return known

    def _needs_index(self, visible: VisibleSegments, at: int) -> bool:
        """Return whether an index is needed to know the aborted transactions of the segment `visible[at]`."""
        return self.committed and not visible[visible.next_stop(at)].segment.transaction_index_empty

    def _location_of(self, visible: VisibleSegments, at: int, offsets: OffsetRange) -> SegmentLocation:
        """Return the location of the wanted offsets of the segment `visible[at]`, without aborted transactions."""
        part = visible[at]
        location = self._positions.location(part.segment, offsets.intersect(part.offsets))
        if location.bytes.end == part.segment.size and _overlaps_next(visible, at):
            return replace(location, following=(part.offsets.end, part.segment.end_offset + 1))
        return location

    def _locate_part(self, visible: VisibleSegments, at: int, offsets: OffsetRange) -> _Located:
        location = self._location_of(visible, at, offsets)
        if not self.committed:
            return location, None
        search = find_aborted(visible, at, location.offsets, self._cache)
        return with_aborted(location, search.transactions), search.seam


def _overlaps_next(visible: VisibleSegments, at: int) -> bool:
    """Return whether the segment after `visible[at]` also has offsets for which `visible[at]` counts.

    Its records must not replace the records of `visible[at]` if that segment's log ends too early.
    """
    return at + 1 < len(visible) and visible[at + 1].segment.base_offset < visible[at].offsets.end


def overlapping(visible: VisibleSegments, offsets: OffsetRange) -> range:
    """Return the positions in `visible` of the segments that count for an offset in `offsets`."""
    if not len(offsets):
        return range(0)
    first = bisect_right(visible, offsets.start, key=lambda part: part.offsets.end)
    end = bisect_right(visible, offsets.end - 1, key=lambda part: part.offsets.start)
    return range(first, end)


def with_aborted(location: SegmentLocation, beyond: Sequence[AbortedTransaction]) -> SegmentLocation:
    """Return the location with those transactions in `beyond` added that touch its offsets."""
    touched = touching(beyond, location.offsets.start, location.offsets.end)
    if not touched:
        return location
    return replace(location, aborted_transactions=tuple(sorted({*location.aborted_transactions, *touched})))
