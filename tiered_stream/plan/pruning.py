"""Restricts a batch query to what its filters can match, before anything is fetched.

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

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_OLDEST_MS = -(_MOST // 1000)
"""Timestamp in ms below which no record can be, because 64 bits hold microseconds."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Set of 64-bit numbers: disjoint spans in ascending order, both ends included."""

    spans: tuple[tuple[int, int], ...] = ((_LEAST, _MOST),)

    @classmethod
    def between(cls, least: int = _LEAST, most: int = _MOST) -> Numbers:
        """Return the numbers from `least` to `most`; an empty set if `most` is less than `least`."""
        return cls(((least, most),) if least <= most else ())

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Numbers:
        return cls(tuple((number, number) for number in sorted(set(numbers))))

    def __and__(self, other: Numbers) -> Numbers:
        """Return the numbers that are in both sets."""
        common = []
        mine, theirs = list(reversed(self.spans)), list(reversed(other.spans))
        while mine and theirs:
            least, most = max(mine[-1][0], theirs[-1][0]), min(mine[-1][1], theirs[-1][1])
            if least <= most:
                common.append((least, most))
            (mine if mine[-1][1] <= theirs[-1][1] else theirs).pop()
        return Numbers(tuple(common))

    def meet(self, least: int, most: int) -> bool:
        """Return whether any number of the set lies from `least` to `most`."""
        at = bisect_left(self.spans, least, key=lambda span: span[1])
        return at < len(self.spans) and self.spans[at][0] <= most


EVERY = Numbers()


@dataclass(frozen=True, slots=True)
class Pruning:
    """Conditions that all rows that pass a query's filters meet; `timestamps` in ms, `topics` None: any topic."""

    topics: frozenset[str] | None = None
    partitions: Numbers = EVERY
    offsets: Numbers = EVERY
    timestamps: Numbers = EVERY

    def __and__(self, other: Pruning) -> Pruning:
        """Return the conditions of rows that pass both."""
        named = [topics for topics in (self.topics, other.topics) if topics is not None]
        return Pruning(
            frozenset.intersection(*named) if named else None,
            self.partitions & other.partitions,
            self.offsets & other.offsets,
            self.timestamps & other.timestamps,
        )

    def within(self, times: TimeRange | None) -> Pruning:
        """Return these conditions, limited to the given times."""
        if times is None:
            return self
        most = _MOST if times.to_ms is None else times.to_ms - 1
        return replace(self, timestamps=self.timestamps & Numbers.between(times.from_ms, most))

    @property
    def times(self) -> TimeRange | None:
        """Times from the first to the last of `timestamps`; None if any time is allowed, or none at all."""
        if self.timestamps in (EVERY, Numbers(())):
            return None
        least, most = self.timestamps.spans[0][0], self.timestamps.spans[-1][1]
        return TimeRange(max(least, _OLDEST_MS), None if most == _MOST else most + 1)

    def ranges(self, ranges: PartitionRanges) -> dict[TopicPartition, OffsetRange]:
        """Return the ranges that may hold matching rows, limited to the first and the last wanted offset."""
        if not (self.offsets.spans and self.timestamps.spans):
            return {}
        least, most = max(0, self.offsets.spans[0][0]), self.offsets.spans[-1][1]
        wanted = OffsetRange(least, max(least, most + 1))
        kept = {partition: found.intersect(wanted) for partition, found in ranges.items() if self._reads(partition)}
        return {partition: found for partition, found in kept.items() if len(found)}

    def _reads(self, partition: TopicPartition) -> bool:
        named = self.topics is None or partition.topic in self.topics
        return named and self.partitions.meet(partition.partition, partition.partition)


class NeededSegments:
    """Filter of segments by their metadata that remembers the segments that cannot hold a wanted row.

    With `look_inside`, a segment's time index is to be used to find the first position of wanted rows.
    """

    def __init__(self, from_timestamp: int = 0, offsets: Numbers = EVERY, *, look_inside: bool = False) -> None:
        self.from_timestamp = from_timestamp
        self.look_inside = look_inside
        self._offsets = offsets
        self.kept: dict[UUID, int] = {}
        self.left_out: dict[UUID, int] = {}
        """Number of bytes by segment id."""

    def __call__(self, segment: RemoteLogSegment) -> bool:
        too_old = 0 <= segment.max_timestamp < self.from_timestamp
        needed = not too_old and self._offsets.meet(segment.base_offset, segment.end_offset)
        (self.kept if needed else self.left_out)[segment.segment_id] = segment.size
        return needed
