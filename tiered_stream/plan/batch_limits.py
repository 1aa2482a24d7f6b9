"""Ends of micro-batches by limits: `maxOffsetsPerTrigger`, `maxBytesPerTrigger` and `minOffsetsPerTrigger`.

Metadata gives the sizes of tiered segments, and an offset index gives the bytes within a segment. Offsets that are not
tiered are assumed to have as many bytes per offset as the partition's segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tiered_stream.locate.locator import Locator, SegmentShare
from tiered_stream.locate.visible_segments import VisibleSegment
from tiered_stream.model import ASSUMED_RECORD_BYTES, OffsetRange, PartitionOffsets, RemoteLogSegment, TopicPartition

_USUAL_BATCH_BYTES = 1 << 20
"""Usual size limit of a record batch in bytes (default of `message.max.bytes`)."""
_MAX_BATCH_BYTES = 1 << 31
"""Size limit of a record batch in bytes, because its length has 32 bits.

If `maxBytesPerTrigger` allows one batch of this size for each offset to read, no segment sizes are requested.
"""


def proportional_ends(start: PartitionOffsets, latest: PartitionOffsets, limit: int) -> dict[TopicPartition, int]:
    """Return by partition a micro-batch's end offset (exclusive), so that the micro-batch has about `limit` offsets.

    The offsets are divided in proportion to the partitions' lags, which are the numbers of offsets from `start` to
    `latest`. A partition's number of offsets is rounded down, but is at least 1. No end lies beyond `latest`. A
    partition that is not in `start`, or starts at or beyond its end, ends at `latest`.
    """
    lags = {partition: max(0, end - start.get(partition, end)) for partition, end in latest.items()}
    total = sum(lags.values())
    ends = dict(latest)
    for partition, lag in lags.items():
        if lag:
            share = max(1, limit * lag // total)
            ends[partition] = min(latest[partition], start[partition] + share)
    return ends


def ends_at_segments(backlog: Backlog, ends: PartitionOffsets) -> dict[TopicPartition, int]:
    """Return by partition its end, moved back to the last segment end at or below it.

    An end stays unchanged if it is the log's end, or if no segment ends between the partition's start and this end. So
    a batch always makes progress.
    """
    aligned = dict(ends)
    for partition, offsets in backlog.ranges.items():
        end = ends[partition]
        if offsets.start < end < offsets.end:
            segment_ends = (part.offsets.end for part in backlog.segments.get(partition, ()))
            aligned[partition] = max((at for at in segment_ends if offsets.start < at <= end), default=end)
    return aligned


def must_wait(
    start: PartitionOffsets, latest: PartitionOffsets, minimum: int, *, waited_ms: float, delay_ms: float
) -> bool:
    """Return whether `minOffsetsPerTrigger` delays the batch.

    The batch is delayed while `waited_ms` is below `delay_ms` and there are fewer than `minimum` new offsets. As in
    Spark, all offsets from 0 on are new in a partition that is not in `start`.
    """
    new_offsets = sum(end - start.get(partition, 0) for partition, end in latest.items())
    return waited_ms < delay_ms and new_offsets < minimum


class _Span(NamedTuple):
    """Offsets of one partition that are all in one tiered segment, or are all not tiered; `end` is exclusive.

    `bytes` is the estimated size of their records. `segment` is None if the offsets are not tiered. A stream may have a
    million segments to read, so spans are tuples, which take less time to make than dataclasses.
    """

    start: int
    end: int
    bytes: int
    segment: RemoteLogSegment | None = None


@dataclass(frozen=True, slots=True)
class _EndInside:
    """End of a micro-batch inside the span `span` of one partition, after about `share` bytes of the span."""

    span: _Span
    share: int

    def estimated_end(self, size: int | None = None) -> int:
        """Return the end offset (exclusive) of the first `size` bytes of the span, if all offsets have equal sizes.

        If `size` is None, it is `share`. At least one offset of the span lies before the returned offset.
        """
        span = self.span
        size = self.share if size is None else size
        return min(span.end, span.start + max(1, size * (span.end - span.start) // span.bytes))

    def share_of_segment(self) -> SegmentShare | None:
        """Return the request by which a locator finds the exact end; None if the span is not tiered."""
        if self.span.segment is None:
            return None
        # Do not request the whole segment, because brokers would cut it into very many parts for a small share.
        end = self.estimated_end(max(2 * self.share, 2 * _USUAL_BATCH_BYTES))
        return SegmentShare(self.span.segment, OffsetRange(self.span.start, end), self.share)


def ends_by_bytes(backlog: Backlog, limit: int) -> dict[TopicPartition, int]:
    """Return by partition a micro-batch's end offset (exclusive), so that the micro-batch has about `limit` bytes.

    The bytes are divided in proportion to the partitions' bytes to read. A partition ends at the last segment end
    before which it has at most its number of bytes. If no segment end fits, the partition ends inside a segment, after
    at least one record batch. If no index gives the positions of batches, the end is estimated, after at least one
    offset. A partition without a start, or with a start at or beyond its end, ends at its latest offset. All ends
    inside segments are requested from the locator at once.

    Raises:
        StorageError, BrokerError, CorruptDataError: the segments cannot be determined.
    """
    ends = dict(backlog.latest)
    if sum(map(len, backlog.ranges.values())) * _MAX_BATCH_BYTES <= limit:
        return ends
    segments = backlog.segments
    lags = {
        partition: sum(span.bytes for span in _spans(offsets, segments.get(partition, ())))
        for partition, offsets in backlog.ranges.items()
    }
    total = sum(lags.values())
    inside: dict[TopicPartition, _EndInside] = {}
    for partition, offsets in backlog.ranges.items():
        spans = _spans(offsets, segments.get(partition, ()))
        end = _end(spans, max(1, limit * lags[partition] // total), offsets.end)
        if isinstance(end, _EndInside):
            inside[partition] = end
        else:
            ends[partition] = end
    return ends | _ends_inside(backlog, inside)


def _ends_inside(backlog: Backlog, inside: dict[TopicPartition, _EndInside]) -> dict[TopicPartition, int]:
    shares = {partition: share for partition, end in inside.items() if (share := end.share_of_segment()) is not None}
    located = backlog.locator.ends_inside(shares) if backlog.locator and shares else {}
    return {partition: located.get(partition) or end.estimated_end() for partition, end in inside.items()}


def _spans(offsets: OffsetRange, segments: Sequence[VisibleSegment]) -> Iterator[_Span]:
    """Yield the spans (`_Span`) that `offsets`, which is not empty, consists of, in offset order.

    Offsets that are not tiered are assumed to have the average size of the offsets in `segments`.
    """
    count, size = _average(segments)

    def untiered(start: int, end: int) -> _Span:
        return _Span(start, end, _bytes_of(end - start, count, size))

    position = offsets.start
    for visible in segments:
        segment = visible.segment
        start, end = max(visible.offsets.start, offsets.start), min(visible.offsets.end, offsets.end)
        if start > position:
            yield untiered(position, start)
        if start < end:
            whole = segment.end_offset + 1 - segment.base_offset
            yield _Span(start, end, _bytes_of(end - start, whole, segment.size), segment)
            position = end
    if position < offsets.end:
        yield untiered(position, offsets.end)


def _average(segments: Sequence[VisibleSegment]) -> tuple[int, int]:
    """Return a number of offsets and the bytes that they have together, to estimate offsets that are not tiered."""
    count = sum(part.segment.end_offset + 1 - part.segment.base_offset for part in segments)
    size = sum(part.segment.size for part in segments)
    return (count, size) if size else (1, ASSUMED_RECORD_BYTES)


def _bytes_of(part: int, whole: int, size: int) -> int:
    """Return the size in bytes of `part` offsets if `whole` offsets have `size` bytes together; at least 1."""
    return max(1, -(-part * size // whole))


def _end(spans: Iterable[_Span], share: int, last: int) -> int | _EndInside:
    """Return the end of a partition that may read at most `share` bytes of `spans`, which end at `last`.

    It is the last segment end before which `spans` have at most `share` bytes. If there is no such segment end, it is
    the end inside the first span that exceeds `share`. If all spans together have at most `share` bytes, it is `last`.
    """
    segment_end = None
    for span in spans:
        if span.bytes > share:
            return _EndInside(span, share) if segment_end is None else segment_end
        share -= span.bytes
        if span.segment is not None:
            segment_end = span.end
    return last


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
            StorageError, BrokerError, CorruptDataError: the segments cannot be determined.
        """
        if self.locator is None:
            return {}
        with_one_before = {
            partition: OffsetRange(max(0, offsets.start - 1), offsets.end) for partition, offsets in self.ranges.items()
        }
        return self.locator.segments(with_one_before)
