"""Where a micro-batch ends by `maxBytesPerTrigger`.

The metadata of tiered segments tell their sizes, an offset index the bytes within one. What is not tiered is taken to
be as dense as the partition's segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.locate.locator import Locator
from tiered_stream.model import ASSUMED_RECORD_BYTES, OffsetRange, PartitionOffsets, TopicPartition

_LARGEST_BATCH = 1 << 20
"""In bytes, unless `message.max.bytes` is raised: of a few offsets nobody has to be asked how large they are."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Offsets of one partition, in one tiered segment or in none, and about how many bytes they have."""

    offsets: OffsetRange
    bytes: int
    tiered: bool


def ends_by_bytes(
    start: PartitionOffsets, latest: PartitionOffsets, limit: int, locator: Locator | None
) -> dict[TopicPartition, int]:
    """Each partition's end when about `limit` bytes are shared out in proportion to what it has to read.

    A partition ends where its last segment ends that its share holds, or else inside of a segment, behind at least one
    record batch. Who has no `start`, or one at or beyond its end, ends at `latest`.

    Raises:
        StorageError, BrokerError, CorruptDataError: as `Locator.locate`.
    """
    ranges = {each: OffsetRange(start[each], end) for each, end in latest.items() if start.get(each, end) < end}
    if sum(map(len, ranges.values())) * _LARGEST_BATCH <= limit:
        return dict(latest)
    # The segment before the start, too: it tells how dense what is not tiered is.
    with_one_before = {each: OffsetRange(max(0, wanted.start - 1), wanted.end) for each, wanted in ranges.items()}
    segments = locator.segments(with_one_before) if locator else {}
    stretches = {each: list(_stretches(wanted, segments.get(each, ()))) for each, wanted in ranges.items()}
    lags = {partition: sum(each.bytes for each in found) for partition, found in stretches.items()}
    total = sum(lags.values())
    ends = dict(latest)
    for partition, found in stretches.items():
        ends[partition] = _end(partition, found, max(1, limit * lags[partition] // total), locator)
    return ends


def _stretches(wanted: OffsetRange, segments: Sequence[VisibleSegment]) -> Iterator[_Stretch]:
    """All of a range that is not empty, in order."""
    offsets = sum(len(each.segment.offsets) for each in segments)
    size = sum(each.segment.size for each in segments)
    offsets, size = (offsets, size) if size else (1, ASSUMED_RECORD_BYTES)

    def untiered(start: int, end: int) -> _Stretch:
        return _Stretch(OffsetRange(start, end), _share(end - start, offsets, size), tiered=False)

    position = wanted.start
    for each in segments:
        part, segment = each.offsets.intersect(wanted), each.segment
        if part.start > position:
            yield untiered(position, part.start)
        if len(part):
            yield _Stretch(part, _share(len(part), len(segment.offsets), segment.size), tiered=True)
            position = part.end
    if position < wanted.end:
        yield untiered(position, wanted.end)


def _share(part: int, whole: int, size: int) -> int:
    """The bytes of some of the offsets of a whole; at least one."""
    return max(1, -(-part * size // whole))


def _end(partition: TopicPartition, stretches: Sequence[_Stretch], share: int, locator: Locator | None) -> int:
    segment_end = None
    for each in stretches:
        if each.bytes > share:
            return _end_inside(partition, each, share, locator) if segment_end is None else segment_end
        share -= each.bytes
        if each.tiered:
            segment_end = each.offsets.end
    return stretches[-1].offsets.end


def _end_inside(partition: TopicPartition, stretch: _Stretch, share: int, locator: Locator | None) -> int:
    """Behind at least one batch where the index tells where batches are, else behind at least one offset."""
    start = stretch.offsets.start

    def estimated(size: int) -> int:
        return min(stretch.offsets.end, start + max(1, size * len(stretch.offsets) // stretch.bytes))

    if locator is not None and stretch.tiered:
        # Not all of the segment: of a small share there would be very many parts.
        around = OffsetRange(start, estimated(max(2 * share, 2 * _LARGEST_BATCH)))
        for location in locator.locate({partition: around}).get(partition, ())[:1]:
            return locator.cut(location, max(1, share))[0].offsets.end
    return estimated(share)
