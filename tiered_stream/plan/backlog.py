"""What a stream has still to read, and what is tiered of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.locate.locator import Locator
from tiered_stream.model import OffsetRange, PartitionOffsets, PartitionRanges, TopicPartition


class Backlog:
    """From `start` to `latest`, of the partitions that have both and something in between.

    The segments are asked for once, of all partitions together, and only if somebody wants to know: each limit of a
    micro-batch looks at the same ones.
    """

    def __init__(self, start: PartitionOffsets, latest: PartitionOffsets, locator: Locator | None) -> None:
        self.start = start
        self.latest = latest
        self.locator = locator
        self.ranges = {
            each: OffsetRange(start[each], end) for each, end in latest.items() if start.get(each, end) < end
        }

    @cached_property
    def segments(self) -> Mapping[TopicPartition, Sequence[VisibleSegment]]:
        """Of each partition, also the one before the start: it tells how dense what is not tiered is.

        Raises:
            StorageError, BrokerError, CorruptDataError: as `Locator.locate`.
        """
        if self.locator is None:
            return {}
        with_one_before = {
            partition: OffsetRange(max(0, wanted.start - 1), wanted.end) for partition, wanted in self.ranges.items()
        }
        return self.locator.segments(with_one_before)

    def segment_ends(self, ranges: PartitionRanges) -> dict[TopicPartition, list[int]]:
        """The ends of the segments that end inside each range, which ends before the backlog does, or at its end."""
        return {
            partition: [
                each.offsets.end
                for each in self.segments.get(partition, ())
                if wanted.start < each.offsets.end <= wanted.end
            ]
            for partition, wanted in ranges.items()
        }
