"""Choice of the segment from which each offset is read, by the partition's history of leader epochs.

Replicas that led at different times may both have copied the same offsets. A leader that lost an unclean election may
have copied records that are no longer part of the log. A record is identified by its offset and the leader epoch in
which it was written. A segment is visible at an offset if the segment and the log have the same leader epoch there
(Kafka: `RemoteLogMetadataCache.remoteLogSegmentMetadata(epoch, offset)`, called with the epoch of
`LeaderEpochFileCache`). Segments with the same epoch hold the same batches at an offset, so either of them gives the
same records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

import numpy as np

from tiered_stream.broker.leader_epochs import END_OF_LOG, Lineage
from tiered_stream.locate.segment_columns import Int64s, Segments
from tiered_stream.model import LeaderEpoch, OffsetRange, RemoteLogSegment


def _no_offsets() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class VisibleSegment:
    """Segment, and the offsets (never empty) at which its records belong to the current log."""

    segment: RemoteLogSegment
    offsets: OffsetRange


@dataclass(frozen=True, eq=False)
class VisibleSegments(Sequence[VisibleSegment]):
    """Sequence of one partition's segments whose records belong to the log, in offset order and disjoint.

    The entries are kept in arrays, and an element is made when it is read from the sequence. An entry is visible from
    the offset in `starts` (inclusive) to the offset in `ends` (exclusive). `rows` has the index of the entry's segment
    in `segments`. Parameters named `at` are indexes of entries.
    """

    segments: Segments = field(default_factory=Segments)
    rows: Int64s = field(default_factory=_no_offsets)
    starts: Int64s = field(default_factory=_no_offsets)
    ends: Int64s = field(default_factory=_no_offsets)
    _recent: dict[int, VisibleSegment] = field(default_factory=dict, init=False, repr=False)
    """The element that was made last, by its index, because callers read the same element several times in a row."""

    @classmethod
    def of(cls, parts: Iterable[VisibleSegment]) -> VisibleSegments:
        """Return the entries `parts`, which are of one partition, in the form of this class."""
        parts = tuple(parts)
        starts, ends = ([part.offsets.start for part in parts], [part.offsets.end for part in parts])
        segments = Segments.of(part.segment for part in parts)
        return cls(segments, np.arange(len(parts)), np.array(starts, np.int64), np.array(ends, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VisibleSegments) and list(self) == list(other)

    @overload
    def __getitem__(self, at: int) -> VisibleSegment: ...
    @overload
    def __getitem__(self, at: slice) -> VisibleSegments: ...
    def __getitem__(self, at: int | slice) -> VisibleSegment | VisibleSegments:
        if isinstance(at, slice):
            return VisibleSegments(self.segments, self.rows[at], self.starts[at], self.ends[at])
        return self._last if at in (-1, len(self) - 1) else self._made(at)

    def _made(self, at: int) -> VisibleSegment:
        made = self._recent.get(at)
        if made is None:
            made = VisibleSegment(self.segments[self.rows[at]], OffsetRange(int(self.starts[at]), int(self.ends[at])))
            self._recent.clear()
            self._recent[at] = made
        return made

    def __iter__(self) -> Iterator[VisibleSegment]:
        offsets = map(OffsetRange, self.starts.tolist(), self.ends.tolist())
        return map(VisibleSegment, self.segments.objects(self.rows), offsets)

    @cached_property
    def _last(self) -> VisibleSegment:
        """Last entry, which is always the same object, so that a cache sees that the entries have not changed."""
        return self._made(-1)

    def column(self, name: str) -> Int64s:
        """Return one field of the visible segments, in their order; `name` is a field of `segment_columns.SEGMENT`."""
        values: Int64s = self.segments.rows[name][self.rows]
        return values

    def next_stop(self, at: int) -> int:
        """Return the first index, from `at` on, of a segment that may have a transaction index or is followed by a gap.

        A gap is a range of offsets that no segment has. The end of the last segment counts as a gap.
        """
        return self._stops[bisect_left(self._stops, at)]

    def ends_at(self, at: int) -> bool:
        """Return whether the entry `at` is the last one, or offsets between it and the next entry are missing."""
        return at + 1 == len(self) or bool(self.starts[at + 1] != self.ends[at])

    @cached_property
    def overlapped(self) -> frozenset[int]:
        """Indexes of the entries whose end (`ends`) lies after the base offset of the next entry's segment."""
        return frozenset(np.flatnonzero(self.column("base")[1:] < self.ends[:-1]).tolist())

    @cached_property
    def _stops(self) -> array[int]:
        stops = self.column("no_transactions") == 0
        stops[:-1] |= self.starts[1:] != self.ends[:-1]
        stops[-1:] = True
        return array("q", np.flatnonzero(stops).tobytes())


def visible_segments(segments: Iterable[RemoteLogSegment], lineage: Lineage, log_start_offset: int) -> VisibleSegments:
    """Return the segments whose records belong to the current log, each with the offsets of these records.

    A record belongs to the log if its leader epoch is in `lineage`, and its offset is below the epoch's end in
    `lineage` and not below `log_start_offset`. The result has each tiered offset of the log once, and as few entries as
    possible. The result does not depend on the order of `segments`.
    """
    return _disjoint(_in_lineage(Segments.of(segments), lineage, log_start_offset))


def lineage_of(epochs: Sequence[LeaderEpoch]) -> Lineage:
    """Return the end offset (exclusive) of each leader epoch of a log, by epoch.

    `epochs` are all leader epochs of the log with their start offsets, sorted by epoch. The last epoch ends at
    `END_OF_LOG`. Epochs without offsets are left out.
    """
    ends = [entry.start_offset for entry in epochs[1:]] + [END_OF_LOG]
    return {entry.epoch: end for entry, end in zip(epochs, ends, strict=False) if entry.start_offset < end}


def _in_lineage(segments: Segments, lineage: Lineage, log_start_offset: int) -> VisibleSegments:
    """Return an entry for each contiguous range of a segment's offsets that belong to the log, sorted by start.

    `visible_segments` says which offsets belong to the log.
    """
    rows = np.repeat(np.arange(len(segments)), segments.rows["epochs"])  # one for each leader epoch of a segment
    entries, ends = segments.epochs, segments.rows["end"][rows] + 1
    starts = entries["start"].astype(np.int64)
    same = rows[1:] == rows[:-1]
    # An epoch ends where the segment's next epoch begins.
    ends[:-1][same] = np.minimum(starts[1:], ends[:-1])[same]
    epochs, which = np.unique(entries["epoch"], return_inverse=True)
    ends = np.minimum(ends, np.array([lineage.get(epoch, 0) for epoch in epochs.tolist()], np.int64)[which])
    starts = np.maximum(np.maximum(starts, segments.rows["base"][rows]), log_start_offset)
    kept = starts < ends
    rows, starts, ends = rows[kept], starts[kept], ends[kept]
    begins = np.ones(len(rows) + 1, bool)
    begins[1:-1] = (rows[1:] != rows[:-1]) | (starts[1:] != ends[:-1])
    first, last = np.flatnonzero(begins[:-1]), np.flatnonzero(begins[1:])
    order = np.argsort(starts[first], kind="stable")
    first, last = first[order], last[order]
    return VisibleSegments(segments, rows[first], starts[first], ends[last])


def _disjoint(parts: VisibleSegments) -> VisibleSegments:
    """Return the entries of `parts`, which are sorted by start, cut so that no two entries have the same offset.

    An offset stays in the entry with the highest end. If several entries have that end, it stays in the entry with the
    highest start.
    """
    if not (parts.starts[1:] < parts.ends[:-1]).any():
        return parts  # replicas of one lineage copy no offset twice
    chosen = np.array(list(_chosen(parts)), np.int64).reshape(-1, 2)
    at, starts = chosen[:, 0], chosen[:, 1]
    return VisibleSegments(parts.segments, parts.rows[at], starts, parts.ends[at])


def _chosen(parts: VisibleSegments) -> Iterator[tuple[int, int]]:
    """Yield the index of each entry in `parts` that keeps offsets, and the first offset that the entry keeps.

    `_disjoint` describes which entry keeps an offset.
    """
    starts, ends = parts.starts.tolist(), parts.ends.tolist()
    high, low = (parts.column(name).tolist() for name in ("high", "low"))
    ids = list(zip(high, low, strict=True))
    position, next_index = 0, 0
    while next_index < len(parts):
        position = max(position, starts[next_index])
        first, next_index = next_index, bisect_right(starts, position, next_index)
        # Earlier entries end at or before the position, because the furthest of them ends there.
        furthest = min(range(first, next_index), key=lambda at: (-ends[at], -starts[at], ids[at]))
        if ends[furthest] > position:
            yield furthest, position
            position = ends[furthest]
