"""`remote.prefer=local`: what the broker still has on its own disk is left to it (KIP-1248)."""

from __future__ import annotations

from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.locate.locator import Locator, WrappedLocator
from tiered_stream.model import OffsetRange, PartitionLocations, PartitionRanges, TopicPartition


class PreferLocal(WrappedLocator):
    """Another locator's answers, cut off where the leader's local log begins."""

    def __init__(self, locator: Locator, offsets: BrokerOffsetReader) -> None:
        super().__init__(locator)
        self._offsets = offsets

    def locate(self, ranges: PartitionRanges) -> PartitionLocations:
        return self.wrapped.locate(self._not_local(ranges))

    def _not_local(self, ranges: PartitionRanges) -> dict[TopicPartition, OffsetRange]:
        local = self._offsets.earliest_local(ranges)
        return {
            partition: OffsetRange(wanted.start, min(wanted.end, max(wanted.start, begin)))
            for partition, wanted in ranges.items()
            if (begin := local[partition]) is not None
        }
