"""Decides which segment counts for which offsets, given the partition's history of leader epochs.

Replicas that led at different times may both have copied the same offsets. A leader that lost an unclean election may
have copied records that are no longer part of the log. A record is identified by its offset and the leader epoch in
which it was written. A segment counts for an offset if its own epoch at that offset is the lineage's epoch (Kafka:
`RemoteLogMetadataCache.remoteLogSegmentMetadata(epoch, offset)`, called with the epoch of `LeaderEpochFileCache`).
Segments with the same epoch hold the same batches at an offset, so either of them gives the same records.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tiered_stream.model import LeaderEpoch, OffsetRange, RemoteLogSegment, SegmentLocation

END_OF_LOG = (1 << 63) - 1

Lineage = Mapping[int, int]
"""The leader epochs of a log, with the end offset (exclusive) of each epoch.

The end is the next epoch's start, and `END_OF_LOG` for the last epoch. An epoch has one leader, so all replicas agree
where it starts, and only its end distinguishes a lost history from the log.
"""


@dataclass(frozen=True, slots=True)
class VisibleSegment:
    """A segment, and the offsets (never empty) for which it counts."""

    segment: RemoteLogSegment
    offsets: OffsetRange


class VisibleSegments(tuple[VisibleSegment, ...]):
    """Visible segments of one partition, sorted and disjoint."""

    @cached_property
    def located(self) -> dict[bool, list[tuple[SegmentLocation, int | None] | None]]:
        """Cache for locators: for read_committed or not, the location and the seam of each part that was located."""
        return {committed: [None] * len(self) for committed in (False, True)}

    def next_stop(self, at: int) -> int:
        """Return the first index from `at` on with a possible transaction index, or with a gap or the end after it."""
        return self._stops[at]

    def ends_at(self, at: int) -> bool:
        """Return whether a gap or the end of the tier follows the part at `at`."""
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
    """Choose one segment for each offset from `log_start_offset` on that some segment has in the lineage.

    The result is sorted, disjoint and has as few parts as possible; it does not depend on the order of `segments`.
    """
    parts = [part for segment in segments for part in _in_lineage(segment, lineage, log_start_offset)]
    return VisibleSegments(_disjoint(parts))


def lineage_of(epochs: Sequence[LeaderEpoch]) -> Lineage:
    """Return the lineage whose epochs start at the offsets in `epochs`, which are sorted by epoch."""
    return {epoch: end for epoch, _, end in _epoch_ranges(epochs, END_OF_LOG)}


def _epoch_ranges(epochs: Sequence[LeaderEpoch], end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (epoch, start, exclusive end) of each epoch that has offsets before `end`."""
    for following, entry in enumerate(epochs, 1):
        epoch_end = min(epochs[following].start_offset, end) if following < len(epochs) else end
        if entry.start_offset < epoch_end:
            yield entry.epoch, entry.start_offset, epoch_end


def _in_lineage(segment: RemoteLogSegment, lineage: Lineage, log_start_offset: int) -> Iterator[VisibleSegment]:
    first = max(segment.base_offset, log_start_offset)
    held: OffsetRange | None = None
    for epoch, start, end in _epoch_ranges(segment.leader_epochs, segment.end_offset + 1):
        start, end = max(first, start), min(end, lineage.get(epoch, 0))
        if start >= end:
            continue
        if held is not None and held.end == start:
            held = OffsetRange(held.start, end)
            continue
        if held is not None:
            yield VisibleSegment(segment, held)
        held = OffsetRange(start, end)
    if held is not None:
        yield VisibleSegment(segment, held)


def _disjoint(parts: list[VisibleSegment]) -> Iterator[VisibleSegment]:
    """Yield for each uncovered offset the part with the furthest end; of several, the one that begins last."""
    parts.sort(key=lambda part: part.offsets.start)
    reaching: list[tuple[int, int, int, int]] = []  # furthest end first: (-end, -start, segment id, index in parts)
    cursor, following = 0, 0
    while following < len(parts) or reaching:
        if not reaching:
            cursor = max(cursor, parts[following].offsets.start)
        while following < len(parts) and parts[following].offsets.start <= cursor:
            part = parts[following]
            entry = (-part.offsets.end, -part.offsets.start, part.segment.segment_id.int, following)
            heapq.heappush(reaching, entry)
            following += 1
        furthest = parts[heapq.heappop(reaching)[3]]
        if furthest.offsets.end <= cursor:
            reaching.clear()  # no other part reaches further than this one, so none reaches the cursor
            continue
        if furthest.offsets.start < cursor:
            furthest = VisibleSegment(furthest.segment, OffsetRange(cursor, furthest.offsets.end))
        yield furthest
        cursor = furthest.offsets.end
