"""Ends of micro-batches by limits: `maxOffsetsPerTrigger` and `maxBytesPerTrigger`.

Metadata gives the sizes of tiered segments, and an offset index gives the bytes within a segment. Offsets that are not
tiered are assumed to have as many bytes per offset as the partition's segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tiered_stream.locate.locator import Locator, SegmentShare
from tiered_stream.locate.visible_segments import VisibleSegments
from tiered_stream.model import ASSUMED_RECORD_BYTES, OffsetRange, PartitionOffsets, RemoteLogSegment, TopicPartition

_USUAL_BATCH_BYTES = 1 << 20
"""Usual size limit of a record batch in bytes; the default of `message.max.bytes` is 12 bytes more."""
_MAX_BATCH_BYTES = 1 << 31
"""Largest possible size of a record batch in bytes, because the length field of a batch has 32 bits.

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
    """Return the end offsets `ends`, each moved back to the last offset at or below it at which a tiered segment ends.

    An end stays unchanged if it is the log's end, or if no segment ends between the partition's start and this end. So
    a micro-batch always makes progress.

    Args:
        backlog: unread offsets of the partitions, with their segments.
        ends: a micro-batch's end offsets (exclusive), by partition.

    Raises:
        StorageError, BrokerError, CorruptDataError: the segments cannot be determined.
    """
    aligned = dict(ends)
    for partition, offsets in backlog.ranges.items():
        end = ends[partition]
        if offsets.start < end < offsets.end:
            segment_ends = backlog.segments[partition].ends if partition in backlog.segments else np.empty(0)
            at = int(np.searchsorted(segment_ends, end, side="right")) - 1
            if at >= 0 and segment_ends[at] > offsets.start:
                aligned[partition] = int(segment_ends[at])
    return aligned


@dataclass(frozen=True, slots=True)
class _EndInside:
    """End of a micro-batch inside the offsets of one partition from `start` to `end` (exclusive).

    The offsets are all in one tiered segment, or are all not tiered; then `segment` is None. `bytes` is the estimated
    size of their records in bytes. The micro-batch ends after about `share` bytes, which is less than `bytes`.
    """

    start: int
    end: int
    bytes: int
    segment: RemoteLogSegment | None
    share: int

    def estimated_end(self, size: int | None = None) -> int:
        """Return the estimated end offset (exclusive) of the first `size` bytes, as if all offsets had equal sizes.

        If `size` is None, it is `share`. The returned offset is at least `start + 1` and at most `end`.
        """
        size = self.share if size is None else size
        return min(self.end, self.start + max(1, size * (self.end - self.start) // self.bytes))

    def share_of_segment(self) -> SegmentShare | None:
        """Return the request for `Locator.ends_inside` to find the exact end; None if the offsets are not tiered."""
        if self.segment is None:
            return None
        # Do not request the whole segment, because brokers would cut it into very many parts for a small share.
        end = self.estimated_end(max(2 * self.share, 2 * _USUAL_BATCH_BYTES))
        return SegmentShare(self.segment, OffsetRange(self.start, end), self.share)


def ends_by_bytes(backlog: Backlog, limit: int) -> dict[TopicPartition, int]:
    """Return by partition a micro-batch's end offset (exclusive), so that the micro-batch has about `limit` bytes.

    The bytes are divided among the partitions in proportion to their unread bytes. A partition ends at the last segment
    end that keeps within the partition's number of bytes. If no segment end does, the partition ends inside a segment,
    after at least one record batch. If no offset index gives the positions of batches, the end is estimated, after at
    least one offset. A partition without a start, or with a start at or beyond its end, ends at its latest offset.

    Args:
        backlog: unread offsets of the partitions, with their segments.
        limit: value of `maxBytesPerTrigger`.

    Raises:
        StorageError, BrokerError, CorruptDataError: the segments cannot be determined.
    """
    ends = dict(backlog.latest)
    if sum(map(len, backlog.ranges.values())) * _MAX_BATCH_BYTES <= limit:
        return ends
    segments = backlog.segments
    spans = {
        partition: _Spans.of(offsets, segments.get(partition, VisibleSegments()))
        for partition, offsets in backlog.ranges.items()
    }
    lags = {partition: int(each.bytes.sum()) for partition, each in spans.items()}
    total = sum(lags.values())
    inside: dict[TopicPartition, _EndInside] = {}
    for partition, each in spans.items():
        end = each.end(max(1, limit * lags[partition] // total))
        if isinstance(end, _EndInside):
            inside[partition] = end
        else:
            ends[partition] = end
    return ends | _ends_inside(backlog, inside)


def _ends_inside(backlog: Backlog, inside: dict[TopicPartition, _EndInside]) -> dict[TopicPartition, int]:
    shares = {partition: share for partition, end in inside.items() if (share := end.share_of_segment()) is not None}
    located = backlog.locator.ends_inside(shares) if backlog.locator and shares else {}
    return {partition: located.get(partition) or end.estimated_end() for partition, end in inside.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Range of offsets in one partition, cut into spans in offset order, with an estimated size of each span.

    The first, the third and each further odd span has offsets that are not tiered, and may be empty. The second, the
    fourth and each further even span has the offsets of one entry of `segments`.
    """

    segments: VisibleSegments
    bounds: npt.NDArray[np.int64]
    """Start offset of each span, and then the end offset (exclusive) of the last span."""
    bytes: npt.NDArray[np.float64]
    """Estimated size of each span in bytes. A float64 holds whole numbers up to 2**53 exactly."""

    @classmethod
    def of(cls, offsets: OffsetRange, segments: VisibleSegments) -> _Spans:
        """Return the spans of the range `offsets`, which must not be empty.

        Offsets that are not tiered are assumed to have the average size of the offsets in `segments`.
        """
        bounds = np.empty(2 * len(segments) + 2, np.int64)
        bounds[0], bounds[-1] = offsets.start, offsets.end
        bounds[1:-1:2], bounds[2:-1:2] = segments.starts, segments.ends
        np.clip(bounds, offsets.start, offsets.end, out=bounds)
        counts = np.diff(bounds).astype(np.float64)
        whole = (segments.column("end") - segments.column("base") + 1).astype(np.float64)
        sizes, tiered = segments.column("size").astype(np.float64), counts[1::2]
        size, count = (sizes.sum(), whole.sum()) if sizes.any() else (ASSUMED_RECORD_BYTES, 1)
        estimated = np.ceil(counts * size / count)
        estimated[1::2] = np.where(tiered == whole, sizes, np.ceil(tiered * sizes / whole))
        return cls(segments, bounds, np.where(counts > 0, np.maximum(estimated, 1), 0))

    def end(self, share: int) -> int | _EndInside:
        """Return the end of a micro-batch that reads about `share` bytes of this partition, from the first span on.

        The result is the end of the last span if all spans together have at most `share` bytes. Otherwise it is the
        last segment end within the first `share` bytes. If there is none, the result is an end inside a span.
        """
        sums = np.cumsum(self.bytes)
        at = int(np.searchsorted(sums, share, side="right"))  # first span that does not fit
        if at == len(sums):
            return int(self.bounds[-1])
        whole = np.flatnonzero(self.bytes[1:at:2])
        if len(whole):
            return int(self.bounds[2 * whole[-1] + 2])
        segment = self.segments[at // 2].segment if at % 2 else None
        start, end = self.bounds[at : at + 2].tolist()
        return _EndInside(start, end, int(self.bytes[at]), segment, share - int(sums[at] - self.bytes[at]))


class Backlog:
    """Offsets that a stream has not read yet: by partition, the range from `start` (inclusive) to `latest` (exclusive).

    Partitions that lack one of the two offsets, or have an empty range, are left out. The tiered segments of all
    partitions are requested together, once, when they are first needed. All limits of a micro-batch use the same
    segments.
    """

    def __init__(self, start: PartitionOffsets, latest: PartitionOffsets, locator: Locator | None) -> None:
        self.latest = latest
        self.locator = locator
        self.ranges = {
            partition: OffsetRange(start[partition], end)
            for partition, end in latest.items()
            if start.get(partition, end) < end
        }

    @cached_property
    def segments(self) -> Mapping[TopicPartition, VisibleSegments]:
        """Tiered segments by partition: they hold offsets of the partition's range, or the offset before the range.

        Offsets that are not tiered are assumed to have as many bytes per offset as these segments. The mapping is empty
        if there is no locator.

        Raises:
            StorageError, BrokerError, CorruptDataError: the segments cannot be determined.
        """
        if self.locator is None:
            return {}
        with_one_before = {
            partition: OffsetRange(max(0, offsets.start - 1), offsets.end) for partition, offsets in self.ranges.items()
        }
        return self.locator.segments(with_one_before)
