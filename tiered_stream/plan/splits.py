"""What one task reads: a micro-batch's offset ranges cut into splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from tiered_stream.locate.locator import Locator
from tiered_stream.model import OffsetRange, SegmentLocation, Split, TopicPartition, within
from tiered_stream.options.parsing import Options
from tiered_stream.plan.data_loss import DataLossPolicy


def splits_for(
    ranges: Mapping[TopicPartition, OffsetRange],
    options: Options,
    locator: Locator | None,
    topic_ids: Mapping[str, UUID],
) -> list[Split]:
    """`plan_splits` as the options have it, each split bound to its topic's id.

    Raises:
        DataLossError: offsets are not in the archive that is read, and `failOnDataLoss` is true.
    """
    splits = plan_splits(
        ranges, locator, split_bytes=options.split_bytes, min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition, topic_ids=topic_ids,
        from_timestamp=options.times.from_ms if options.times else 0,
    )  # fmt: skip
    if options.locator == "archive":
        splits = _archived(splits, DataLossPolicy(options.fail_on_data_loss))
    return [replace(split, topic_id=topic_ids.get(split.topic_partition.topic)) for split in splits]


def _archived(splits: Sequence[Split], data_loss: DataLossPolicy) -> list[Split]:
    """Those that the archive holds: there is no broker to read the others from."""
    for split in splits:
        if not split.locations:
            first, last = split.offsets.start, split.offsets.end - 1
            data_loss.report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"{split.topic_partition}: no segment in the archive holds the offsets {first} to {last}.",
            )
    return [split for split in splits if split.locations]


def plan_splits(
    ranges: Mapping[TopicPartition, OffsetRange],
    locator: Locator | None,
    *,
    split_bytes: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    topic_ids: Mapping[str, UUID] | None = None,
    from_timestamp: int = 0,
) -> list[Split]:
    """The splits of a micro-batch, by partition and offset: each offset of each range in exactly one of them.

    But offsets are left out that lie in segments without a record at or after `from_timestamp` (ms).

    A tiered stretch is cut into splits of about `split_bytes`, small segments side by side in one; what `locator`
    does not know, or knows of a topic with another id than in `topic_ids`, comes from the broker.
    `max_records_per_partition` and `min_partitions` ask for more splits, as in Spark's `KafkaOffsetRangeCalculator`.
    """
    stretches = [
        stretch
        for pieces in _pieces(ranges, max_records_per_partition)
        for stretch in _stretches(pieces, _located(locator, pieces, topic_ids or {}) if locator else {}, from_timestamp)
    ]
    parts = parts_of([len(stretch.offsets) for stretch in stretches], min_partitions)
    splits = [split for stretch, count in zip(stretches, parts, strict=True)
              for split in _cut(stretch, locator, split_bytes, count)]  # fmt: skip
    return sorted(splits, key=lambda split: (split.topic_partition, split.offsets.start))


def _located(
    locator: Locator, ranges: Mapping[TopicPartition, OffsetRange], topic_ids: Mapping[str, UUID]
) -> dict[TopicPartition, tuple[SegmentLocation, ...]]:
    """The locations in the topics that are meant: one may have been made again since its id was asked for."""

    def meant(partition: TopicPartition, found: Sequence[SegmentLocation]) -> bool:
        ids = {location.segment.topic_id for location in (found[0], found[-1])}
        return partition.topic not in topic_ids or ids == {topic_ids[partition.topic]}

    return {each: found for each, found in locator.locate(ranges).items() if found and meant(each, found)}


def _pieces(
    ranges: Mapping[TopicPartition, OffsetRange], max_records: int | None
) -> Iterator[dict[TopicPartition, OffsetRange]]:
    """The ranges, cut so that none holds more than `max_records` offsets; one piece of each partition at a time."""
    pieces = {
        topic_partition: divide(wanted, -(-len(wanted) // max_records) if max_records else 1)
        for topic_partition, wanted in ranges.items()
        if len(wanted)
    }
    for index in range(max(map(len, pieces.values()), default=0)):
        yield {each: parts[index] for each, parts in pieces.items() if index < len(parts)}


def _stretches(
    ranges: Mapping[TopicPartition, OffsetRange],
    located: Mapping[TopicPartition, Sequence[SegmentLocation]],
    from_timestamp: int,
) -> Iterator[Split]:
    """Each range as alternating stretches from storage and from the broker, not yet cut to size."""
    for topic_partition, wanted in ranges.items():
        position = wanted.start
        run: list[SegmentLocation] = []
        for location in located.get(topic_partition, ()):
            wanted_too = not 0 <= location.segment.max_timestamp < from_timestamp
            if location.offsets.start > position or not wanted_too:
                yield from _tiered(topic_partition, run)
                run = []
            if location.offsets.start > position:
                yield Split(topic_partition, OffsetRange(position, location.offsets.start))
            if wanted_too:
                run.append(location)
            position = location.offsets.end
        yield from _tiered(topic_partition, run)
        if position < wanted.end:
            yield Split(topic_partition, OffsetRange(position, wanted.end))


def _tiered(topic_partition: TopicPartition, run: Sequence[SegmentLocation]) -> Iterator[Split]:
    if run:
        yield Split(topic_partition, OffsetRange(run[0].offsets.start, run[-1].offsets.end), tuple(run))


def parts_of(sizes: Sequence[int], min_partitions: int | None) -> list[int]:
    """Into how many parts to cut each of `sizes` so that there are about `min_partitions`, in proportion.

    As Spark: those that get one part by their share of the whole are set aside, the others share what is left.
    """
    wanted = min_partitions or 0
    if wanted <= len(sizes):
        return [1] * len(sizes)

    def share(size: int, total: int, parts: int) -> int:
        return max(1, int(size / total * parts + 0.5))

    total = sum(sizes)
    first = [share(size, total, wanted) for size in sizes]
    small = sum(1 for parts in first if parts == 1)
    rest = sum(size for size, parts in zip(sizes, first, strict=True) if parts > 1)
    return [
        1 if parts == 1 else share(size, rest, max(1, wanted - small)) for size, parts in zip(sizes, first, strict=True)
    ]


def divide(offsets: OffsetRange, parts: int) -> list[OffsetRange]:
    """`offsets` in `parts` (at most as many as there are offsets) nearly equal ranges; the remainder lands late."""
    pieces = []
    start = offsets.start
    for left in range(min(parts, len(offsets)), 0, -1):
        size = (offsets.end - start) // left
        pieces.append(OffsetRange(start, start + size))
        start += size
    return pieces


def _cut(stretch: Split, locator: Locator | None, split_bytes: int, parts: int) -> list[Split]:
    """A stretch cut into at least `parts` splits."""
    if locator is None or not stretch.locations:
        return [replace(stretch, offsets=piece) for piece in divide(stretch.offsets, parts)]
    target = max(1, min(split_bytes, -(-stretch.storage_bytes // parts)))
    pieces = [
        piece
        for location in stretch.locations
        for piece in (locator.cut(location, target) if len(location.bytes) > 1.5 * target else (location,))
    ]
    splits = [Split(stretch.topic_partition, _span(group), tuple(group)) for group in _groups(pieces, target)]
    return splits if len(splits) >= parts else _cut_inside(splits, parts)


def _span(locations: Sequence[SegmentLocation]) -> OffsetRange:
    return OffsetRange(locations[0].offsets.start, locations[-1].offsets.end)


def _groups(locations: Sequence[SegmentLocation], target: int) -> Iterator[list[SegmentLocation]]:
    """Neighbours together until they reach about `target` bytes."""
    group: list[SegmentLocation] = []
    size = 0
    for location in locations:
        if group and size + len(location.bytes) / 2 > target:
            yield group
            group, size = [], 0
        group.append(location)
        size += len(location.bytes)
    yield group


def _cut_inside(splits: Sequence[Split], parts: int) -> list[Split]:
    """As many splits as were asked for, where there are fewer places to cut: by offsets, bytes read more than once."""
    counts = parts_of([len(split.offsets) for split in splits], parts)
    return [
        Split(split.topic_partition, piece, tuple(within(split.locations, piece)))
        for split, count in zip(splits, counts, strict=True)
        for piece in divide(split.offsets, count)
    ]
