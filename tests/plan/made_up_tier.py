"""A `Locator` over made-up segments.

It leaves out: storage (nothing is fetched, there are no bytes), lineage and leader epochs, log start offsets, aborted
transactions, and news: what is tiered when it is made is all there ever is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from tests.tier.segments import described
from tiered_stream.locate.locator import Locator, SegmentFilter, SegmentShare, every_segment
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation, TopicPartition

MADE_UP_ID = UUID(int=1)
SIGNED_URL = "https://storage/segment?signature=do-not-show"


@dataclass(frozen=True)
class TieredLog:
    """Offsets `start` to `end` in one segment, in batches of `batch_offsets` offsets and `batch_bytes` bytes each."""

    start: int
    end: int
    batch_offsets: int = 10
    batch_bytes: int = 100
    max_timestamp: int = -1
    topic_id: UUID = MADE_UP_ID

    def bytes_of(self, offsets: OffsetRange) -> ByteRange:
        """The whole batches that hold `offsets`."""
        first = (offsets.start - self.start) // self.batch_offsets
        end = -(-(offsets.end - self.start) // self.batch_offsets)
        return ByteRange(first * self.batch_bytes, end * self.batch_bytes)


class MadeUpTier(Locator):
    """Any logs of a partition, ascending, with or without gaps."""

    name = "made up"

    def __init__(self, logs: Mapping[TopicPartition, Iterable[TieredLog]], signed_url: str | None = SIGNED_URL) -> None:
        self._signed_url = signed_url
        self._logs = {
            partition: {self._segment(partition, log): log for log in tiered} for partition, tiered in logs.items()
        }

    @classmethod
    def ending_at(cls, ends: Mapping[TopicPartition, Collection[int]]) -> MadeUpTier:
        """A tier whose segments follow one another from offset 0, and end there."""
        return cls({each: [TieredLog(*offsets) for offsets in pairwise((0, *found))] for each, found in ends.items()})

    def find_locations(
        self, ranges: Mapping[TopicPartition, OffsetRange], needed: SegmentFilter = every_segment
    ) -> dict[TopicPartition, tuple[SegmentLocation, ...]]:
        return {
            partition: tuple(
                self._location(segment, log, common)
                for segment, log in self._logs.get(partition, {}).items()
                if len(common := segment.offsets.intersect(wanted))
            )
            for partition, wanted in ranges.items()
        }

    def segments(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, VisibleSegments]:
        return {
            partition: VisibleSegments.of(
                VisibleSegment(segment, segment.offsets)
                for segment in self._logs.get(partition, {})
                if len(segment.offsets.intersect(wanted))
            )
            for partition, wanted in ranges.items()
        }

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        ends = {}
        for partition, share in shares.items():
            location = self._location(share.segment, self.log(share.segment), share.offsets)
            ends[partition] = self.cut(location, share.bytes)[0].offsets.end
        return ends

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        log = self.log(location.segment)
        step = max(1, target_bytes // log.batch_bytes) * log.batch_bytes
        starts = range(location.bytes.start, location.bytes.end, step)
        parts = [ByteRange(start, min(start + step, location.bytes.end)) for start in starts]
        return [replace(location, offsets=self._offsets(log, part, location.offsets), bytes=part) for part in parts]

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        return [self.cut(*each) for each in cuts]

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        return [
            [
                self._location(location.segment, self.log(location.segment), OffsetRange(start, end))
                for start, end in pairwise((location.offsets.start, *starts, location.offsets.end))
            ]
            for location, starts in cuts
        ]

    def log(self, segment: RemoteLogSegment) -> TieredLog:
        return self._logs[segment.topic_partition][segment]

    def _location(self, segment: RemoteLogSegment, log: TieredLog, offsets: OffsetRange) -> SegmentLocation:
        return SegmentLocation(segment, offsets, log.bytes_of(offsets), signed_url=self._signed_url)

    @staticmethod
    def _offsets(log: TieredLog, part: ByteRange, wanted: OffsetRange) -> OffsetRange:
        first, end = (log.start + at // log.batch_bytes * log.batch_offsets for at in (part.start, part.end))
        return OffsetRange(first, end).intersect(wanted)

    @staticmethod
    def _segment(partition: TopicPartition, log: TieredLog) -> RemoteLogSegment:
        size = log.bytes_of(OffsetRange(log.start, log.end)).end
        return described(
            partition, log.start, log.end, log.start, topic_id=log.topic_id, size=size, max_timestamp=log.max_timestamp
        )
