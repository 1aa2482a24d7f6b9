"""Conditions on topics, partitions, offsets and timestamps that restrict what a batch query reads.

A segment's metadata gives only its largest timestamp. So a lower bound on timestamps excludes segments, but an upper
bound excludes none: any later segment may hold older records, because producers may set timestamps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from tiered_stream.model import OffsetRange, PartitionRanges, RemoteLogSegment, TopicPartition
from tiered_stream.options.positions import TimeRange

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_OLDEST_MS = -(_INT64_MAX // 1000)
"""Lowest possible timestamp in ms, because Spark holds timestamps as 64-bit numbers of microseconds."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Set of 64-bit integers: disjoint spans in ascending order, both ends included."""

    spans: tuple[tuple[int, int], ...] = ((_INT64_MIN, _INT64_MAX),)

    @classmethod
    def between(cls, first: int = _INT64_MIN, last: int = _INT64_MAX) -> Numbers:
        """Return the set of the integers from `first` to `last`; it is empty if `last` is less than `first`."""
        return cls(((first, last),) if first <= last else ())

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Numbers:
        """Return the set of these integers."""
        return cls(tuple((number, number) for number in sorted(set(numbers))))

    def __and__(self, other: Numbers) -> Numbers:
        """Return the set of the integers that are in both sets."""
        common = []
        own, others = list(reversed(self.spans)), list(reversed(other.spans))
        while own and others:
            first, last = max(own[-1][0], others[-1][0]), min(own[-1][1], others[-1][1])
            if first <= last:
                common.append((first, last))
            (own if own[-1][1] <= others[-1][1] else others).pop()
        return Numbers(tuple(common))

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether the set has an integer from `first` to `last`, both included."""
        at = bisect_left(self.spans, first, key=lambda span: span[1])
        return at < len(self.spans) and self.spans[at][0] <= last


EVERY = Numbers()


@dataclass(frozen=True, slots=True)
class Pruning:
    """Values of Kafka's columns that rows can have if they pass a query's filters.

    `timestamps` are in milliseconds. If `topics` is None, rows can be of any topic.
    """

    topics: frozenset[str] | None = None
    partitions: Numbers = EVERY
    offsets: Numbers = EVERY
    timestamps: Numbers = EVERY

    def __and__(self, other: Pruning) -> Pruning:
        """Return the values that rows can have if they pass the filters of both `Pruning`s."""
        named = [topics for topics in (self.topics, other.topics) if topics is not None]
        return Pruning(
            frozenset.intersection(*named) if named else None,
            self.partitions & other.partitions,
            self.offsets & other.offsets,
            self.timestamps & other.timestamps,
        )

    def within(self, times: TimeRange | None) -> Pruning:
        """Return the conditions limited to timestamps in `times`; if `times` is None, return them unchanged."""
        if times is None:
            return self
        last = _INT64_MAX if times.to_ms is None else times.to_ms - 1
        return replace(self, timestamps=self.timestamps & Numbers.between(times.from_ms, last))

    @property
    def times(self) -> TimeRange | None:
        """Range from the first to the last of `timestamps`.

        It is None if `timestamps` has all integers, or has none.
        """
        if self.timestamps in (EVERY, Numbers(())):
            return None
        first, last = self.timestamps.spans[0][0], self.timestamps.spans[-1][1]
        return TimeRange(max(first, _OLDEST_MS), None if last == _INT64_MAX else last + 1)

    def ranges(self, ranges: PartitionRanges) -> dict[TopicPartition, OffsetRange]:
        """Return the ranges of the partitions that may hold matching rows, cut to the first and last of `self.offsets`.

        Ranges that are then empty are left out.
        """
        if not (self.offsets.spans and self.timestamps.spans):
            return {}
        first, last = max(0, self.offsets.spans[0][0]), self.offsets.spans[-1][1]
        span = OffsetRange(first, max(first, last + 1))
        limited = {
            partition: offsets.intersect(span) for partition, offsets in ranges.items() if self._allows(partition)
        }
        return {partition: offsets for partition, offsets in limited.items() if len(offsets)}

    def _allows(self, partition: TopicPartition) -> bool:
        named = self.topics is None or partition.topic in self.topics
        return named and self.partitions.overlaps(partition.partition, partition.partition)


class NeededSegments:
    """Filter (`SegmentFilter`) for segments that may have rows at or after a timestamp and at given offsets.

    The filter keeps the sizes of the segments for which it was called. With `look_inside`, the caller of the filter
    also skips the first batches of a needed segment by its time index.

    Args:
        from_timestamp: timestamp in ms; 0: segments of all timestamps are needed.
        offsets: a segment is needed only if it has one of these offsets.
    """

    def __init__(self, from_timestamp: int = 0, offsets: Numbers = EVERY, *, look_inside: bool = False) -> None:
        self.from_timestamp = from_timestamp
        self.look_inside = look_inside
        self._offsets = offsets
        self.needed_bytes: dict[UUID, int] = {}
        """Size in bytes of each needed segment, by segment id."""
        self.skipped_bytes: dict[UUID, int] = {}
        """Size in bytes of each segment that is not needed, by segment id."""

    def __call__(self, segment: RemoteLogSegment) -> bool:
        """Return whether the segment is needed, and keep its size in `needed_bytes` or `skipped_bytes`."""
        too_old = 0 <= segment.max_timestamp < self.from_timestamp
        needed = not too_old and self._offsets.overlaps(segment.base_offset, segment.end_offset)
        (self.needed_bytes if needed else self.skipped_bytes)[segment.segment_id] = segment.size
        return needed
