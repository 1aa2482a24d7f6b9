"""Planner of splits: it cuts the offset ranges of a micro-batch so that one task reads one split."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from tiered_stream.locate.locator import Locator
from tiered_stream.model import (
    OffsetRange,
    PartitionLocations,
    PartitionRanges,
    SegmentLocation,
    Split,
    TopicPartition,
    merged,
    within,
)
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.parsing import Options
from tiered_stream.plan.data_loss import DataLossPolicy
from tiered_stream.plan.plan_size import check_demanded_splits, check_plan_fits
from tiered_stream.plan.pruning import NeededSegments

_ONE_REQUEST_BYTES = 16 << 20
"""Maximum size in bytes of a location whose first batches are not skipped by timestamp.

Up to this size, fetching all bytes is as fast as fetching the indexes that show which bytes to skip.
"""


def splits_for(
    ranges: PartitionRanges,
    options: Options,
    locator: Locator | None,
    topic_ids: Mapping[str, UUID],
    needed: NeededSegments | None = None,
) -> list[Split]:
    """Return the splits of a micro-batch, sorted by partition and offset; each offset is in at most one split.

    There are two kinds of splits:

    - A tiered split has locations: the byte ranges of tiered segments that hold its offsets. Tiered offsets are cut
      into splits of about `remote.split.bytes`, and adjacent small segments are joined in one split.
    - A broker split has no locations, and is read from the broker. It has offsets that `locator` does not locate, or
      locates for another topic id than in `topic_ids`. If `locator` is None, all splits are broker splits.

    `maxRecordsPerPartition` and `minPartitions` demand more splits, as in Spark's `KafkaOffsetRangeCalculator`.

    Some offsets are in no split. If `needed` is false for a segment, the offsets of the segment are left out. If
    `needed.look_inside` is true, a tiered split also begins later, as described at `_newer_splits`: the batches at its
    beginning are left out if a time index shows that they are older than `needed.from_timestamp`.

    Args:
        topic_ids: topic ids by topic; the splits have them.
        needed: filter of the segments to read. None: segments that are too old for the times in the options are left
            out.

    Raises:
        ConfigurationError: the splits would not fit into the driver's memory.
        DataLossError: the archive that is read lacks offsets, and `failOnDataLoss` is true.
        StorageError, BrokerError, CorruptDataError: the segments or their bytes cannot be determined.
    """
    needed = needed or NeededSegments(options.times.from_ms if options.times else 0)
    max_records = options.max_records_per_partition
    not_empty = {partition: offsets for partition, offsets in ranges.items() if len(offsets)}
    check_demanded_splits([len(offsets) for offsets in not_empty.values()], options.min_partitions, max_records)
    pieces = {
        partition: divide(offsets, -(-len(offsets) // max_records) if max_records else 1)
        for partition, offsets in not_empty.items()
    }
    located: PartitionLocations = {}
    if locator is not None:
        located = _cut_at_pieces(pieces, _locate(locator, not_empty, topic_ids, needed), locator, needed)
    uncut = [
        split
        for partition, ranges_of_partition in pieces.items()
        for piece in ranges_of_partition
        for split in _uncut_splits(partition, piece, located.get(partition, ()), needed)
    ]
    if locator is not None and needed.look_inside and needed.from_timestamp > 0:
        uncut = _newer_splits(uncut, locator, needed.from_timestamp)
    check_plan_fits(uncut, options.split_bytes)
    counts = split_counts([len(split.offsets) for split in uncut], options.min_partitions)
    splits = _cut_splits(uncut, locator, options.split_bytes, counts)
    splits.sort(key=lambda split: (split.topic_partition, split.offsets.start))
    if options.locator is LocatorName.ARCHIVE:
        splits = _archived_splits(splits, locator, DataLossPolicy(options.fail_on_data_loss))
    return [replace(split, topic_id=topic_ids.get(split.topic_partition.topic)) for split in splits]


def _archived_splits(splits: Sequence[Split], locator: Locator | None, data_loss: DataLossPolicy) -> list[Split]:
    """Return the splits of an archive that have locations; report the offsets of the other splits as data loss."""
    for split in splits:
        if not split.locations:
            first, last = split.offsets.start, split.offsets.end - 1
            missing = locator.missing_objects(split.topic_partition, split.offsets) if locator else ()
            gone = f": {' and '.join(missing)} is missing" if missing else ""
            data_loss.report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"{split.topic_partition}: no segment in the archive holds the offsets {first} to {last}{gone}.",
            )
    return [split for split in splits if split.locations]


def _locate(
    locator: Locator, ranges: PartitionRanges, topic_ids: Mapping[str, UUID], needed: NeededSegments
) -> PartitionLocations:
    """Return by partition the locations of `ranges`; no locations if the topic's id is not the id in `topic_ids`.

    The id differs if the topic was deleted and created again after its id was looked up.
    """
    located = locator.locate(ranges, needed)
    for partition, locations in located.items():
        ids = {location.segment.topic_id for location in (*locations[:1], *locations[-1:])}
        if partition.topic in topic_ids and ids != {topic_ids[partition.topic]}:
            located[partition] = ()
    return located


def _cut_at_pieces(
    pieces: Mapping[TopicPartition, Sequence[OffsetRange]],
    located: PartitionLocations,
    locator: Locator,
    needed: NeededSegments,
) -> PartitionLocations:
    """Return the locations `located` by partition, cut at the starts of the partition's offset ranges in `pieces`.

    Locations in segments for which `needed` is false are not cut. The locator is called once for all cuts.
    """
    all_starts = {
        partition: [piece.start for piece in ranges] for partition, ranges in pieces.items() if len(ranges) > 1
    }
    cuts = {
        (partition, number): (location, inside)
        for partition, starts in all_starts.items()
        for number, location in enumerate(located.get(partition, ()))
        if needed(location.segment) and (inside := _inside(starts, location.offsets))
    }
    if not cuts:
        return located
    parts = dict(zip(cuts, locator.cut_at(list(cuts.values())), strict=True))
    return located | {
        partition: tuple(
            part
            for number, location in enumerate(located.get(partition, ()))
            for part in parts.get((partition, number), (location,))
        )
        for partition in all_starts
    }


def _inside(ascending: Sequence[int], offsets: OffsetRange) -> Sequence[int]:
    """Return the values of `ascending` (offsets) that lie inside `offsets` and after its start."""
    return ascending[bisect_right(ascending, offsets.start) : bisect_left(ascending, offsets.end)]


def _uncut_splits(
    topic_partition: TopicPartition, offsets: OffsetRange, located: Sequence[SegmentLocation], needed: NeededSegments
) -> Iterator[Split]:
    """Yield the splits of the range `offsets`, as large as possible.

    Adjacent locations become one split if `needed` is true for their segments. Offsets between locations become a split
    without locations, which is read from the broker. Offsets of locations that are not needed are left out.
    """
    position = offsets.start
    adjacent: list[SegmentLocation] = []
    first = bisect_right(located, offsets.start, key=lambda location: location.offsets.end)
    end = bisect_left(located, offsets.end, key=lambda location: location.offsets.start)
    for location in within(located[first:end], offsets):
        is_needed = needed(location.segment)
        if adjacent and (location.offsets.start > position or not is_needed):
            yield _tiered_split(topic_partition, adjacent)
            adjacent = []
        if location.offsets.start > position:
            yield Split(topic_partition, OffsetRange(position, location.offsets.start))
        if is_needed:
            adjacent.append(location)
        position = location.offsets.end
    if adjacent:
        yield _tiered_split(topic_partition, adjacent)
    if position < offsets.end:
        yield Split(topic_partition, OffsetRange(position, offsets.end))


def _newer_splits(splits: Sequence[Split], locator: Locator, timestamp: int) -> list[Split]:
    """Return the splits, without the batches at their beginning that are older than `timestamp` (ms).

    The time indexes of segments show which batches are older. A split is left out if all its batches are older. Splits
    without locations stay whole, and so do locations of at most `_ONE_REQUEST_BYTES`.

    The first locations of all splits are looked up together. If the whole first location of a split is older, its next
    location is looked up in the next round.
    """
    locations = [split.locations for split in splits]
    numbers = list(range(len(splits)))
    while numbers := [
        number for number in numbers if locations[number] and len(locations[number][0].bytes) > _ONE_REQUEST_BYTES
    ]:
        rests = locator.since_all([locations[number][0] for number in numbers], timestamp)
        for number, rest in zip(numbers, rests, strict=True):
            locations[number] = (*([rest] if rest else []), *locations[number][1:])
        numbers = [number for number, rest in zip(numbers, rests, strict=True) if rest is None]
    return [
        _tiered_split(split.topic_partition, rest) if rest else split
        for split, rest in zip(splits, locations, strict=True)
        if rest or not split.locations
    ]


def _tiered_split(topic_partition: TopicPartition, adjacent: Sequence[SegmentLocation]) -> Split:
    """Return the split of adjacent locations, of which there is at least one."""
    offsets = OffsetRange(adjacent[0].offsets.start, adjacent[-1].offsets.end)
    return Split(topic_partition, offsets, tuple(adjacent))


def split_counts(sizes: Sequence[int], min_partitions: int | None) -> list[int]:
    """Return for each split the number of splits into which to cut it, for about `min_partitions` splits in all.

    If `min_partitions` is None or there are enough splits, all numbers are 1. Otherwise they are in proportion to
    `sizes`, the sizes of the splits, with at least 1 each. As in Spark, the splits whose share of `min_partitions`
    rounds to 1 stay whole. The rest of `min_partitions` is divided among the other splits.
    """
    target = min_partitions or 0
    if target <= len(sizes):
        return [1] * len(sizes)

    def share(size: int, total: int, count: int) -> int:
        return max(1, int(size / total * count + 0.5))

    total = sum(sizes)
    whole = [share(size, total, target) == 1 for size in sizes]
    rest = sum(size for size, is_whole in zip(sizes, whole, strict=True) if not is_whole)
    left = max(1, target - sum(whole))
    return [1 if is_whole else share(size, rest, left) for size, is_whole in zip(sizes, whole, strict=True)]


def divide(offsets: OffsetRange, count: int) -> list[OffsetRange]:
    """Divide `offsets` into `count` nearly equal ranges, the larger ones last.

    If there are fewer than `count` offsets, each range has one offset.
    """
    ranges = []
    start = offsets.start
    for left in range(min(count, len(offsets)), 0, -1):
        size = (offsets.end - start) // left
        ranges.append(OffsetRange(start, start + size))
        start += size
    return ranges


def _cut_splits(
    uncut: Sequence[Split], locator: Locator | None, split_bytes: int, counts: Sequence[int]
) -> list[Split]:
    """Cut each split into splits of about `split_bytes`, and into at least as many as its number in `counts`.

    The locator is called once for all cuts.
    """
    targets = [
        max(1, min(split_bytes, -(-split.storage_bytes // count))) for split, count in zip(uncut, counts, strict=True)
    ]
    large = [
        (location, target)
        for split, target in zip(uncut, targets, strict=True)
        for location in split.locations
        if len(location.bytes) > 1.5 * target
    ]
    cut = iter(locator.cut_all(large) if locator else ())
    splits: list[Split] = []
    for split, target, count in zip(uncut, targets, counts, strict=True):
        parts = [
            part
            for location in split.locations
            for part in (next(cut) if len(location.bytes) > 1.5 * target else (location,))
        ]
        splits += _splits_of_parts(split, parts, target, count)
    return splits


def _splits_of_parts(split: Split, parts: Sequence[SegmentLocation], target: int, count: int) -> list[Split]:
    """Divide `split` into at least `count` splits, if it has as many offsets, and return them.

    Adjacent parts that have about `target` bytes together become one split.

    Args:
        parts: parts into which the locations of `split` were cut; empty: `split` has no locations.
    """
    if not parts:
        return [replace(split, offsets=offsets) for offsets in divide(split.offsets, count)]
    groups = _joined_locations(parts, target)
    splits = [_tiered_split(split.topic_partition, group) for group in groups]
    return splits if len(splits) >= count else _cut_inside(splits, count)


def _joined_locations(locations: Sequence[SegmentLocation], target: int) -> Iterator[list[SegmentLocation]]:
    """Yield groups of adjacent locations that have about `target` bytes together.

    Adjacent parts of one segment become one location in a group.
    """
    joined: list[SegmentLocation] = []
    size = 0
    for location in locations:
        if joined and size + len(location.bytes) / 2 > target:
            yield joined
            joined, size = [], 0
        both = merged(joined[-1], location) if joined else None
        if both is None:
            joined.append(location)
        else:  # without merging, the bytes that both have would be fetched twice
            size -= len(joined[-1].bytes)
            joined[-1] = location = both
        size += len(location.bytes)
    yield joined


def _cut_inside(splits: Sequence[Split], count: int) -> list[Split]:
    """Cut `splits` at arbitrary offsets into about `count` splits in all, and return them.

    If a location is cut in this way, each of its splits reads all bytes of the location. So this is only for locations
    in which the offset index has too few entries for cuts.
    """
    counts = split_counts([len(split.offsets) for split in splits], count)
    return [
        Split(split.topic_partition, offsets, tuple(within(split.locations, offsets)))
        for split, share in zip(splits, counts, strict=True)
        for offsets in divide(split.offsets, share)
    ]
