"""Ends of micro-batches by `maxBytesPerTrigger`.

Metadata gives the sizes of tiered segments, and an offset index gives the bytes within a segment. Offsets that are not
tiered are assumed to have as many bytes per offset as the partition's segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.locate.locator import SegmentShare
from tiered_stream.model import ASSUMED_RECORD_BYTES, OffsetRange, PartitionOffsets, RemoteLogSegment, TopicPartition
from tiered_stream.plan.backlog import Backlog


def proportional_ends(start: PartitionOffsets, latest: PartitionOffsets, limit: int) -> dict[TopicPartition, int]:
    """Return each partition's end if about `limit` offsets are shared out in proportion to its offsets to read.

    A share below 1 becomes 1, other shares are rounded down, and no share goes beyond `latest`. A partition that is not
    in `start`, or starts at or beyond its end, ends at `latest`.
    """
    lags = {partition: max(0, end - start.get(partition, end)) for partition, end in latest.items()}
    total = sum(lags.values())
    ends = dict(latest)
    for partition, lag in lags.items():
        if lag:
            share = max(1, limit * lag // total)
            ends[partition] = min(latest[partition], start[partition] + share)
    return ends


def limited_ranges(
    start: PartitionOffsets, ends: PartitionOffsets, latest: PartitionOffsets
) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges that a limit has cut short; their ends may move back to a segment end."""
    return {
        partition: OffsetRange(start[partition], end)
        for partition, end in ends.items()
        if partition in start and start[partition] < end < latest[partition]
    }


def ends_at_segments(
    ends: PartitionOffsets, segment_ends: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, int]:
    """Return `ends`, moved back to the partition's last segment end in `segment_ends` if there is one.

    `segment_ends` are the segment ends inside the partition's range (`Backlog.segment_ends` of `limited_ranges`). They
    are above the range's start, so a batch always makes progress. Without such a segment end, the batch ends inside a
    segment.
    """
    return {
        partition: max((at for at in segment_ends.get(partition, ()) if at <= end), default=end)
        for partition, end in ends.items()
    }


def must_wait(
    start: PartitionOffsets, latest: PartitionOffsets, minimum: int, *, waited_ms: float, delay_ms: float
) -> bool:
    """Return whether `minOffsetsPerTrigger` holds the batch back: too few new offsets, and the wait was too short.

    As in Spark, a partition that is not in `start` counts from offset 0 here.
    """
    new_offsets = sum(end - start.get(partition, 0) for partition, end in latest.items())
    return waited_ms < delay_ms and new_offsets < minimum


_LARGEST_BATCH = 1 << 20
"""Assumed size limit of a record batch in bytes (default of `message.max.bytes`).

If all offsets to read have fewer bytes than the limit even in batches of this size, nothing is requested.
"""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Offsets of one partition that are in one tiered segment or in none, and their approximate bytes."""

    offsets: OffsetRange
    bytes: int
    segment: RemoteLogSegment | None = None


@dataclass(frozen=True, slots=True)
class _EndInside:
    """Micro-batch end inside a stretch, after about `share` bytes of it."""

    stretch: _Stretch
    share: int

    def estimated(self, size: int | None = None) -> int:
        """Return the end after `size` bytes and at least one offset, if all offsets of the stretch have equal bytes."""
        offsets = self.stretch.offsets
        size = self.share if size is None else size
        return min(offsets.end, offsets.start + max(1, size * len(offsets) // self.stretch.bytes))

    def asked(self) -> SegmentShare | None:
        """Return the share of a segment for which an index can give the end, or None if the stretch is not tiered."""
        if self.stretch.segment is None:
            return None
        # Not the whole segment, because a small share would lead to very many parts.
        end = self.estimated(max(2 * self.share, 2 * _LARGEST_BATCH))
        return SegmentShare(self.stretch.segment, OffsetRange(self.stretch.offsets.start, end), self.share)


def ends_by_bytes(backlog: Backlog, limit: int) -> dict[TopicPartition, int]:
    """Return each partition's end if about `limit` bytes are shared out in proportion to its bytes to read.

    A partition ends at the last segment end within its share. Without one, it ends inside a segment: after at least one
    record batch if an index gives batch positions, otherwise after at least one offset. A partition without a start, or
    with a start at or beyond its end, ends at its latest offset. The locator is asked once for all ends inside
    segments.

    Raises:
        StorageError, BrokerError, CorruptDataError: the errors of `Locator.locate`.
    """
    ends = dict(backlog.latest)
    if sum(map(len, backlog.ranges.values())) * _LARGEST_BATCH <= limit:
        return ends
    segments = backlog.segments
    stretches = {
        partition: list(_stretches(wanted, segments.get(partition, ()))) for partition, wanted in backlog.ranges.items()
    }
    lags = {partition: sum(stretch.bytes for stretch in found) for partition, found in stretches.items()}
    total = sum(lags.values())
    inside: dict[TopicPartition, _EndInside] = {}
    for partition, found in stretches.items():
        end = _end(found, max(1, limit * lags[partition] // total))
        if isinstance(end, _EndInside):
            inside[partition] = end
        else:
            ends[partition] = end
    return ends | _ends_inside(backlog, inside)


def _ends_inside(backlog: Backlog, inside: dict[TopicPartition, _EndInside]) -> dict[TopicPartition, int]:
    asked = {partition: share for partition, end in inside.items() if (share := end.asked()) is not None}
    told = backlog.locator.ends_inside(asked) if backlog.locator and asked else {}
    return {partition: told.get(partition) or end.estimated() for partition, end in inside.items()}


def _stretches(wanted: OffsetRange, segments: Sequence[VisibleSegment]) -> Iterator[_Stretch]:
    """Yield the stretches of a range that is not empty, in order."""
    offsets = sum(len(part.segment.offsets) for part in segments)
    size = sum(part.segment.size for part in segments)
    offsets, size = (offsets, size) if size else (1, ASSUMED_RECORD_BYTES)

    def untiered(start: int, end: int) -> _Stretch:
        return _Stretch(OffsetRange(start, end), _share(end - start, offsets, size))

    position = wanted.start
    for visible in segments:
        part, segment = visible.offsets.intersect(wanted), visible.segment
        if part.start > position:
            yield untiered(position, part.start)
        if len(part):
            yield _Stretch(part, _share(len(part), len(segment.offsets), segment.size), segment)
            position = part.end
    if position < wanted.end:
        yield untiered(position, wanted.end)


def _share(part: int, whole: int, size: int) -> int:
    """Return the bytes of `part` of `whole` offsets that have `size` bytes together; at least 1."""
    return max(1, -(-part * size // whole))


def _end(stretches: Sequence[_Stretch], share: int) -> int | _EndInside:
    segment_end = None
    for stretch in stretches:
        if stretch.bytes > share:
            return _EndInside(stretch, share) if segment_end is None else segment_end
        share -= stretch.bytes
        if stretch.segment is not None:
            segment_end = stretch.offsets.end
    return stretches[-1].offsets.end
