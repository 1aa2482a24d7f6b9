"""Locator for `remote.prefer=local`: brokers serve the offsets that they still have on their own disks (KIP-1248)."""

from __future__ import annotations

from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.locate.locator import Locator, SegmentFilter, WrappedLocator, every_segment
from tiered_stream.model import OffsetRange, PartitionLocations, PartitionRanges


class PreferLocal(WrappedLocator):
    """Locator that returns another locator's locations only for offsets before the start of the leader's local log.

    Args:
        locator: the other locator.
        offsets: reader of the offsets at which local logs start.
        patience_ms: maximum time in ms to wait for a leader. A partition whose leader does not respond in that time
            gets no locations. None: a leader that does not respond is an error.
    """

    def __init__(self, locator: Locator, offsets: BrokerOffsetReader, patience_ms: int | None = None) -> None:
        super().__init__(locator)
        self._offsets = offsets
        self._patience_ms = patience_ms

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        local = self._offsets.earliest_local(ranges, self._patience_ms)
        not_local = {
            partition: OffsetRange(offsets.start, min(offsets.end, max(offsets.start, begin)))
            for partition, offsets in ranges.items()
            if (begin := local[partition]) is not None
        }
        return self.wrapped.locate(not_local, needed)
