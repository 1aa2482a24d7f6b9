"""Choice of the segment from which each offset is read, by the partition's history of leader epochs.

Replicas that led at different times may both have copied the same offsets. A leader that lost an unclean election may
have copied records that are no longer part of the log. A record is identified by its offset and the leader epoch in
which it was written. A segment is visible at an offset if its own epoch at that offset is the lineage's epoch (Kafka:
`RemoteLogMetadataCache.remoteLogSegmentMetadata(epoch, offset)`, called with the epoch of `LeaderEpochFileCache`).
Segments with the same epoch hold the same batches at an offset, so either of them gives the same records.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tiered_stream.broker.leader_epochs import END_OF_LOG, Lineage
from tiered_stream.model import LeaderEpoch, OffsetRange, RemoteLogSegment, SegmentLocation


@dataclass(frozen=True, slots=True)
class VisibleSegment:
    """Segment, and the offsets (never empty) at which its records belong to the current log."""

    segment: RemoteLogSegment
    offsets: OffsetRange


class VisibleSegments(tuple[VisibleSegment, ...]):
    """Visible segments of one partition, in offset order and disjoint.

    Parameters named `at` are indexes in this tuple.
    """

    @cached_property
    def located(self) -> dict[bool, list[tuple[SegmentLocation, int | None] | None]]:
        """Cache that locators fill: by isolation (True: read_committed), a list with a pair or None for each segment.

        A pair has the segment's location and an offset. The offset is the one at which the tiered segments end, or a
        gap between them begins, while transactions of the location may be undecided. It is None if all transactions are
        decided. An entry of the list is None until a locator has set it.
        """
        return {committed: [None] * len(self) for committed in (False, True)}

    def next_stop(self, at: int) -> int:
        """Return the first index, from `at` on, of a segment that may have a transaction index, or that a gap follows.

        The end of the last segment counts as a gap.
        """
        return self._stops[at]

    def ends_at(self, at: int) -> bool:
        """Return whether a gap in the offsets follows the segment at the index `at`, or no segment follows."""
        return at + 1 == len(self) or self[at + 1].offsets.start != self[at].offsets.end

    @cached_property
    def _stops(self) -> Sequence[int]:
        stops = array("q", bytes(8 * len(self)))
        stop = len(self)
        for at in reversed(range(len(self))):
            if not self[at].segment.transaction_index_empty or self.ends_at(at):
                stop = at
            stops[at] = stop
        return stops


def visible_segments(segments: Iterable[RemoteLogSegment], lineage: Lineage, log_start_offset: int) -> VisibleSegments:
    """Return the segments whose records belong to the current log, each with the offsets of these records.

    A record belongs to the log if its leader epoch is in `lineage`, and its offset is below the epoch's end and not
    below `log_start_offset`. The result has each tiered offset of the log once, and as few entries as possible. The
    result does not depend on the order of `segments`.
    """
    parts = [part for segment in segments for part in _in_lineage(segment, lineage, log_start_offset)]
    return VisibleSegments(_disjoint(parts))


def lineage_of(epochs: Sequence[LeaderEpoch]) -> Lineage:
    """Return the lineage of a log with the leader epochs `epochs`, which are sorted by epoch.

    The last epoch ends at `END_OF_LOG`.
    """
    return {epoch: end for epoch, _, end in _epoch_ranges(epochs, END_OF_LOG)}


def _epoch_ranges(epochs: Sequence[LeaderEpoch], end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (epoch, start, exclusive end) of each of the sorted `epochs` that has offsets below `end`."""
    for next_index, entry in enumerate(epochs, 1):
        epoch_end = min(epochs[next_index].start_offset, end) if next_index < len(epochs) else end
        if entry.start_offset < epoch_end:
            yield entry.epoch, entry.start_offset, epoch_end


def _in_lineage(segment: RemoteLogSegment, lineage: Lineage, log_start_offset: int) -> Iterator[VisibleSegment]:
    """Yield the segment once for each contiguous range of its offsets that belong to the log.

    Offsets belong to the log if they are in the lineage and at or above the log start.
    """
    first = max(segment.base_offset, log_start_offset)
    if len(segment.leader_epochs) == 1:  # almost always true
        ((epoch, epoch_start),) = segment.leader_epochs
        start, end = max(first, epoch_start), min(segment.end_offset + 1, lineage.get(epoch, 0))
        if start < end:
            yield VisibleSegment(segment, OffsetRange(start, end))
        return
    offsets: OffsetRange | None = None
    for epoch, start, end in _epoch_ranges(segment.leader_epochs, segment.end_offset + 1):
        start, end = max(first, start), min(end, lineage.get(epoch, 0))
        if start >= end:
            continue
        if offsets is not None and offsets.end == start:
            offsets = OffsetRange(offsets.start, end)
            continue
        if offsets is not None:
            yield VisibleSegment(segment, offsets)
        offsets = OffsetRange(start, end)
    if offsets is not None:
        yield VisibleSegment(segment, offsets)


def _disjoint(parts: list[VisibleSegment]) -> Iterator[VisibleSegment]:
    """Yield the entries of `parts` in offset order, cut so that no two entries have the same offset.

    At each offset, the entry with the highest end is chosen. If several entries have that end, the entry with the
    highest start is chosen. The list `parts` is sorted in place.
    """
    parts.sort(key=lambda part: part.offsets.start)
    if all(part.offsets.end <= later.offsets.start for part, later in pairwise(parts)):
        yield from parts  # replicas of one lineage copy no offset twice
        return
    candidates: list[tuple[int, int, int, int]] = []  # (-end, -start, segment id, index in parts)
    position, next_index = 0, 0
    while next_index < len(parts) or candidates:
        if not candidates:
            position = max(position, parts[next_index].offsets.start)
        while next_index < len(parts) and parts[next_index].offsets.start <= position:
            part = parts[next_index]
            entry = (-part.offsets.end, -part.offsets.start, part.segment.segment_id.int, next_index)
            heapq.heappush(candidates, entry)
            next_index += 1
        furthest = parts[heapq.heappop(candidates)[3]]
        if furthest.offsets.end <= position:
            candidates.clear()  # no other candidate has a further end, so none ends after the position
            continue
        if furthest.offsets.start < position:
            furthest = VisibleSegment(furthest.segment, OffsetRange(position, furthest.offsets.end))
        yield furthest
        position = furthest.offsets.end
