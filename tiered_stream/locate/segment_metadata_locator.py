"""Common base of the locators that know the segments' metadata: turns visible segments into locations."""

from __future__ import annotations

import logging
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from tiered_stream.errors import CorruptDataError, StorageError, naming
from tiered_stream.locate.aborted_transactions import find_aborted
from tiered_stream.locate.fallback import SegmentsLeftOut
from tiered_stream.locate.indexes.index_cache import DEFAULT_CACHE_BYTES, IndexCache
from tiered_stream.locate.indexes.offset_index_search import SegmentPositions
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
from tiered_stream.records.transactions import control_batches
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

INDEX_REQUESTS_IN_FLIGHT = 16

Visible = Sequence[VisibleSegment]


_Located = tuple[SegmentLocation, int | None]
"""A location, and the seam at which transactions of its offsets are still undecided (None: all are decided)."""


class SegmentMetadataLocator(Locator):
    """Locator over segment metadata; a subclass provides the metadata, and the aborted transactions beyond the tier.

    With `falls_back`, a segment is left out of the result if the storage does not give its index, because the caller
    has brokers to read it from.
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
    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Visible]:
        """Return the segments that count, sorted and disjoint, by partition."""

    def _saw(self, visible: Mapping[TopicPartition, Visible]) -> None:
        """Remember the segments that `segments` returned, from which a micro-batch is planned; does nothing here."""

    def _visible_again(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Visible]:
        """Return the segments that count, by partition; a recent result of `segments` may be used again."""
        return self.visible_of(partitions)

    @abstractmethod
    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        """Return, by partition and offset, the aborted transactions with records on both sides of the offset.

        An unknown last offset may be given as any offset from the seam on. Keys that are missing in the result could
        not be determined; the locations that need them are left to the brokers.
        """

    def _ask_ahead(self, seams: Mapping[TopicPartition, int]) -> None:
        """Request the results of `_aborted_across` for all seams together if possible; does nothing by default."""

    @collection_paused()
    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        visible = self._visible_again([partition for partition, wanted in ranges.items() if len(wanted)])
        parts = {each: overlapping(visible[each], wanted) for each, wanted in ranges.items() if each in visible}
        located = self._locate_all(visible, parts, ranges, needed)
        seams = {each: {seam for _, seam in found if seam is not None} for each, found in located.items()}
        asked = [(partition, seam) for partition, of in seams.items() for seam in of]
        across = self._aborted_across(asked) if asked else {}
        locations: PartitionLocations = dict.fromkeys(ranges, ())
        for partition, found in located.items():
            beyond: dict[int | None, Sequence[AbortedTransaction] | None] = {None: ()}
            beyond.update({seam: across.get((partition, seam)) for seam in seams[partition]})
            locations[partition] = tuple(
                with_aborted(location, more) if more else location
                for location, seam in found
                if (more := beyond[seam]) is not None
            )
        return locations

    def segment_ends(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[int, ...]]:
        visible = self.visible_of([partition for partition, wanted in ranges.items() if len(wanted)])
        return {
            partition: tuple(
                part.offsets.end for part in visible.get(partition, ()) if wanted.start < part.offsets.end <= wanted.end
            )
            for partition, wanted in ranges.items()
        }

    def since(self, location: SegmentLocation, timestamp: int) -> SegmentLocation | None:
        try:
            return self._positions.since(location, timestamp)
        except StorageError as error:
            if not self.falls_back:
                raise
            log.warning("segment %s is read from its start: %s", location.segment.segment_id, error)
            return location

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """Return `since` of all locations, computed in parallel because each call waits for indexes."""
        return list(self.executor.map(lambda location: self.since(location, timestamp), locations))

    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        visible = self.visible_of([partition for partition, wanted in ranges.items() if len(wanted)])
        self._saw(visible)
        return {
            partition: tuple(found[at] for at in overlapping(found, wanted))
            for partition, wanted in ranges.items()
            for found in [visible.get(partition, ())]
        }

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return the end offset of each share by the offset indexes, without brokers or aborted transactions."""
        shared = {each: [VisibleSegment(share.segment, share.offsets)] for each, share in shares.items()}
        left_out = SegmentsLeftOut(self._fetcher, shared)

        def end_of(share: SegmentShare) -> int | None:
            ask = partial(self._positions.end_of, share)
            # `locate` has the same failure later, and logs it.
            return left_out.unless_storage_fails(share.segment, ask) if self.falls_back else ask()

        ends = zip(shares, self.executor.map(end_of, shares.values()), strict=True)
        return {partition: end for partition, end in ends if end is not None}

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        return self._cut(location, lambda: self._positions.cut(location, target_bytes))

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """Cut all locations in parallel, because each cut waits for an index."""
        return list(self.executor.map(lambda each: self.cut(*each), cuts))

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Cut all locations in parallel, because each cut waits for an index."""

        def cut(location: SegmentLocation, offsets: Sequence[int]) -> Sequence[SegmentLocation]:
            return self._cut(location, lambda: self._positions.cut_at(location, offsets))

        return list(self.executor.map(lambda each: cut(*each), cuts))

    def _cut(
        self, location: SegmentLocation, cut: Callable[[], Sequence[SegmentLocation]]
    ) -> Sequence[SegmentLocation]:
        try:
            return cut()
        except StorageError as error:
            if not self.falls_back:
                raise
            log.warning("segment %s stays in one split: %s", location.segment.segment_id, error)
            return [location]

    def expect(self, visible: Mapping[TopicPartition, Visible], ranges: PartitionRanges) -> None:
        """Prefetch together what `location` requests one by one for these offsets; on failure, it asks again."""
        seams = {}
        for partition, wanted in ranges.items():
            for at in overlapping(visible[partition], wanted)[-1:]:
                _, seam = self._whole(visible[partition], at, wanted, every_segment) or (None, None)
                if seam is not None:
                    seams[partition] = seam
        self._ask_ahead(seams)

    def location(self, visible: Visible, at: int, wanted: OffsetRange, *, committed: bool) -> SegmentLocation:
        """Return the location of `wanted`, which lies in `visible[at]`; `committed`: with its aborted transactions.

        Raises: the errors of `locate`.
        """
        segment = visible[at].segment
        if not committed:
            return self._positions.location(segment, wanted)
        location, seam_offset = self._whole(visible, at, wanted, every_segment) or self._locate_one(visible, at, wanted)
        if seam_offset is None:
            return location
        seam = segment.topic_partition, seam_offset
        return with_aborted(location, self._aborted_across([seam])[seam])

    def close(self) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)

    def _locate_all(
        self,
        visible: Mapping[TopicPartition, Visible],
        parts: Mapping[TopicPartition, range],
        ranges: PartitionRanges,
        needed: SegmentFilter,
    ) -> dict[TopicPartition, list[_Located]]:
        """Locate the parts of all partitions, in parallel where requests to the storage are needed.

        Parts are left out if the storage fails to give their indexes and they may be left out.
        """
        left_out = SegmentsLeftOut(self._fetcher, visible)

        def locate(item: tuple[TopicPartition, int]) -> _Located | None:
            partition, index = item
            at, wanted = parts[partition][index], ranges[partition]
            one = partial(self._locate_one, visible[partition], at, wanted)
            segment, offsets = visible[partition][at].segment, visible[partition][at].offsets
            if not needed(segment):
                return SegmentLocation(segment, wanted.intersect(offsets), ByteRange(0, 0)), None
            return left_out.unless_storage_fails(segment, one) if self.falls_back else left_out.or_fail(segment, one)

        located = {each: self._wholes(visible[each], parts[each], ranges[each], needed) for each in parts}
        unknown = [
            (partition, index) for partition, found in located.items() for index, one in enumerate(found) if one is None
        ]
        for (partition, index), one in zip(unknown, self.executor.map(locate, unknown), strict=True):
            located[partition][index] = one
        left_out.tell()
        return {partition: [one for one in found if one is not None] for partition, found in located.items()}

    def _wholes(
        self, visible: Visible, parts: range, wanted: OffsetRange, needed: SegmentFilter
    ) -> list[_Located | None]:
        """Return the location of each part that is wanted whole and needs no index, and None for the other parts.

        If all segments are needed, known locations are reused, because there may be 100,000 parts.
        """
        if not isinstance(visible, VisibleSegments) or needed is not every_segment:
            return [self._whole(visible, at, wanted, needed) for at in parts]
        found = visible.located[self.committed][parts.start : parts.stop]
        cut = {0, len(parts) - 1} if len(parts) else set()  # only the first and the last part may be wanted in part
        for index in cut.union(index for index, one in enumerate(found) if one is None):
            found[index] = self._whole(visible, parts[index], wanted, needed)
        return found

    def _whole(self, visible: Visible, at: int, wanted: OffsetRange, needed: SegmentFilter) -> _Located | None:
        """Return the location of a part that is wanted as a whole and needs no index, and cache it; None otherwise."""
        part = visible[at]
        if not isinstance(visible, VisibleSegments) or not needed(part.segment):
            return None
        if wanted.start > part.offsets.start or wanted.end < part.offsets.end:
            return None
        known = visible.located[self.committed][at]
        if known is None and part.offsets == part.segment.offsets and not self._needs_index(visible, at):
            # Aborted transactions are then known from the seam to which the search would go on.
            seam = visible[visible.next_stop(at)].offsets.end if self.committed else None
            known = visible.located[self.committed][at] = self._place(visible, at, wanted), seam
        return known

    def _needs_index(self, visible: VisibleSegments, at: int) -> bool:
        """Return whether an index is needed to know the aborted transactions of a part."""
        return self.committed and not visible[visible.next_stop(at)].segment.transaction_index_empty

    def _place(self, visible: Visible, at: int, wanted: OffsetRange) -> SegmentLocation:
        """Return the location of the wanted offsets of a part, without aborted transactions."""
        part = visible[at]
        location = self._positions.location(part.segment, wanted.intersect(part.offsets))
        if location.bytes.end == part.segment.size and _overlaps_next(visible, at):
            return replace(location, following=(part.offsets.end, part.segment.end_offset + 1))
        return location

    def _locate_one(self, visible: Visible, at: int, wanted: OffsetRange) -> _Located:
        location = self._place(visible, at, wanted)
        if not self.committed:
            return location, None
        search = find_aborted(visible, at, location.offsets, self._cache)
        for transaction in search.found:
            if transaction.last_offset >= wanted.end:
                self._check_marker(visible, transaction)
        return with_aborted(location, search.found), search.seam

    def _check_marker(self, visible: Visible, transaction: AbortedTransaction) -> None:
        """Check that the log has the marker of a transaction that ended beyond the wanted offsets."""
        offset = transaction.last_offset
        segment = visible[bisect_right(visible, offset, key=lambda part: part.offsets.start) - 1].segment
        place = self._positions.location(segment, OffsetRange(offset, offset + 1)).bytes
        data = self._fetcher.fetch_log_segment(segment, place.start, place.end)
        with naming(segment):
            if (offset, transaction.producer_id) not in control_batches(data):
                raise CorruptDataError(
                    f"its transaction index says that producer {transaction.producer_id} ended a transaction at offset "
                    f"{offset}, but its log does not: one of the two was altered"
                )


def _overlaps_next(visible: Visible, at: int) -> bool:
    """Return whether the next segment also holds offsets of this part.

    Its records must not stand in for this segment's if this segment ends early.
    """
    return at + 1 < len(visible) and visible[at + 1].segment.base_offset < visible[at].offsets.end


def overlapping(visible: Visible, wanted: OffsetRange) -> range:
    """Return the indexes of the parts that share an offset with `wanted`."""
    if not len(wanted):
        return range(0)
    first = bisect_right(visible, wanted.start, key=lambda part: part.offsets.end)
    end = bisect_right(visible, wanted.end - 1, key=lambda part: part.offsets.start)
    return range(first, end)


def with_aborted(location: SegmentLocation, beyond: Sequence[AbortedTransaction]) -> SegmentLocation:
    """Return the location with the transactions of `beyond` added that touch its offsets."""
    touched = touching(beyond, location.offsets.start, location.offsets.end)
    if not touched:
        return location
    return replace(location, aborted_transactions=tuple(sorted({*location.aborted_transactions, *touched})))
