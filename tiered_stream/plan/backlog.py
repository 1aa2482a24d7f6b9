"""Offsets that a stream has not read yet, and their tiered segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.locate.locator import Locator
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition


class Backlog:
    """Offsets that a stream has not read yet: by partition, the range from `start` (inclusive) to `latest` (exclusive).

    Partitions that lack one of the two offsets, or have an empty range, are left out. The tiered segments of all
    partitions are requested together, once, when they are first needed. All limits of a micro-batch use the same
    segments.
    """

    def __init__(self, start: PartitionOffsets, latest: PartitionOffsets, locator: Locator | None) -> None:
        self.start = start
        self.latest = latest
        self.locator = locator
        self.ranges = {
            partition: OffsetRange(start[partition], end)
            for partition, end in latest.items()
            if start.get(partition, end) < end
        }

    @cached_property
    def segments(self) -> Mapping[TopicPartition, Sequence[VisibleSegment]]:
        """Tiered segments, by partition, that hold offsets of its range, or the offset before the range.

        Offsets that are not tiered are assumed to have as many bytes per offset as these segments.

        Raises:
            StorageError, BrokerError, CorruptDataError: the errors of `Locator.locate`.
        """
        if self.locator is None:
            return {}
        with_one_before = {
            partition: OffsetRange(max(0, offsets.start - 1), offsets.end) for partition, offsets in self.ranges.items()
        }
        return self.locator.segments(with_one_before)
