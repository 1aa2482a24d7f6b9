"""`remote.prefer=local`: what the broker still has on its own disk is left to it (KIP-1248)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tiered_stream.broker.offsets import BrokerOffsetReader
from tiered_stream.locate.base import Locator
from tiered_stream.offsets import OffsetRange, TopicPartition
from tiered_stream.segments import SegmentLocation


class PreferLocal(Locator):
    """Another locator's answers, cut off where the leader's local log begins."""

    def __init__(self, locator: Locator, offsets: BrokerOffsetReader) -> None:
        self.name = locator.name
        self._locator = locator
        self._offsets = offsets

    def locate(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, tuple[SegmentLocation, ...]]:
        return self._locator.locate(self._not_local(ranges))

    def segment_ends(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, tuple[int, ...]]:
        return self._locator.segment_ends(ranges)

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        return self._locator.cut(location, target_bytes)

    def close(self) -> None:
        self._locator.close()

    def _not_local(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
        local = self._offsets.earliest_local(ranges)
        return {
            partition: OffsetRange(wanted.start, min(wanted.end, max(wanted.start, begin)))
            for partition, wanted in ranges.items()
            if (begin := local[partition]) is not None
        }
