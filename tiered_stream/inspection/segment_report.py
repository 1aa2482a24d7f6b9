"""Report of `tiered-stream segments`: tiered segments, the offsets read from each, and why others are not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.inspection.tier_contents import PartitionTier, TierContents
from tiered_stream.locate.metadata_topic.remote_log_metadata import RemoteLogSegmentState
from tiered_stream.locate.visible_segments import VisibleSegment, visible_segments
from tiered_stream.model import OffsetRange, RemoteLogSegment, TopicPartition, uuid_to_text
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.positions import show_time


class NotCounted(StrEnum):
    """Reason why some offsets of a segment are not read from that segment."""

    COPYING = "its copy is not finished"
    DELETING = "its deletion has begun"
    OTHER_EPOCHS = "its leader epochs are not the log's"
    BELOW_LOG_START = "they lie below the log start offset"
    OVERLAPPED = "another segment has them, too"


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """One tiered segment in the report, with the state of its copy (KIP-405).

    `counts` are the offset ranges that are read from this segment. `not_counted` are the reasons why its other offsets
    are not read from it. `overlaps` is True if another finished segment has some of the same offsets.
    """

    segment: RemoteLogSegment
    state: RemoteLogSegmentState
    counts: tuple[OffsetRange, ...]
    not_counted: tuple[NotCounted, ...]
    overlaps: bool

    @property
    def orphan(self) -> bool:
        """True if no offset is read from this segment."""
        return not self.counts

    def figures(self) -> dict[str, Any]:
        """Return the segment's fields and figures as a dictionary for JSON."""
        segment = self.segment
        return {
            "segment_id": uuid_to_text(segment.segment_id),
            "base_offset": segment.base_offset,
            "last_offset": segment.end_offset,
            "bytes": segment.size,
            "leader_epochs": [entry._asdict() for entry in segment.leader_epochs],
            "state": self.state.name,
            "max_timestamp_ms": None if segment.max_timestamp < 0 else segment.max_timestamp,
            "counts": [asdict(offsets) for offsets in self.counts],
            "not_counted": list(self.not_counted),
            "overlaps": self.overlaps,
        }


@dataclass(frozen=True, slots=True)
class SegmentSums:
    """Sums over segments: number and bytes of all segments and of the orphans, and number of overlapping segments.

    An orphan is a segment from which no offset is read. An overlapping segment shares offsets with another segment.
    """

    segments: int
    bytes: int
    orphans: int
    orphan_bytes: int
    overlapping: int

    @classmethod
    def of(cls, listed: Sequence[ListedSegment]) -> SegmentSums:
        """Return the sums over the listed segments."""
        sizes = [segment.segment.size for segment in listed]
        orphan_sizes = [segment.segment.size for segment in listed if segment.orphan]
        overlapping = sum(segment.overlaps for segment in listed)
        return cls(len(sizes), sum(sizes), len(orphan_sizes), sum(orphan_sizes), overlapping)

    def __str__(self) -> str:
        mib = f"{self.bytes / (1 << 20):,.1f} MiB"
        orphans = f", {self.orphans:,} orphans of {self.orphan_bytes:,} bytes" if self.orphans else ""
        overlapping = f", {self.overlapping:,} overlap" if self.overlapping else ""
        return f"{self.segments:,} segments, {mib}{orphans}{overlapping}"


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """Segments of one partition, sorted by base offset.

    `log` is the offset range of the partition's log. `not_tiered` are the ranges in `log` that are read from no
    segment.
    """

    partition: TopicPartition
    log: OffsetRange
    not_tiered: tuple[OffsetRange, ...]
    segments: tuple[ListedSegment, ...]

    @classmethod
    def of(cls, partition: TopicPartition, tier: PartitionTier) -> ListedPartition:
        """Return the report's entry for `partition`, built from the partition's tiered segments (`tier`)."""
        return cls(partition, tier.log, tuple(_gaps(tier)), tuple(_listed(tier)))

    def figures(self) -> dict[str, Any]:
        """Return the partition's fields and figures as a dictionary for JSON."""
        return {
            **self.partition._asdict(),
            "log": asdict(self.log),
            "not_tiered": [asdict(offsets) for offsets in self.not_tiered],
            "total": asdict(SegmentSums.of(self.segments)),
            "segments": [segment.figures() for segment in self.segments],
        }


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """Report on the tiered segments of all chosen partitions.

    `located_by` is the name of the locator that has listed the segments. `faults` are the partitions whose segments
    could not be listed, with the reasons.
    """

    located_by: str
    partitions: tuple[ListedPartition, ...]
    faults: tuple[tuple[TopicPartition, str], ...]

    @classmethod
    def of(cls, contents: TierContents) -> SegmentReport:
        """Return the report on the segments in `contents`, with partitions in sorted order."""
        partitions = tuple(ListedPartition.of(*each) for each in sorted(contents.tiers.found.items()))
        faults = tuple((name, str(fault)) for name, fault in sorted(contents.tiers.faults.items()))
        return cls(str(contents.located_by), partitions, faults)

    @property
    def only_counted(self) -> bool:
        """True if the locator is `broker` (KIP-1248), which names only segments from which offsets are read."""
        return self.located_by == LocatorName.BROKER

    def topics(self) -> Iterator[tuple[str, SegmentSums]]:
        """Yield each topic's name with the sums over the segments of its partitions, sorted by name."""
        for topic, of_topic in groupby(self.partitions, key=lambda listed: listed.partition.topic):
            yield topic, SegmentSums.of([segment for listed in of_topic for segment in listed.segments])

    def to_json(self) -> str:
        """Return the whole report as JSON."""
        figures = {
            "told_by": self.located_by,
            "only_what_counts": self.only_counted,
            "partitions": [listed.figures() for listed in self.partitions],
            "topics": [{"topic": topic, **asdict(sums)} for topic, sums in self.topics()],
            "faults": [{**partition._asdict(), "reason": reason} for partition, reason in self.faults],
        }
        return orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode()


def _gaps(tier: PartitionTier) -> Iterator[OffsetRange]:
    """Yield the offset ranges of the log that are read from no segment."""
    position = tier.log.start
    for part in tier.visible:
        if part.offsets.start > position:
            yield OffsetRange(position, part.offsets.start)
        position = max(position, part.offsets.end)
    if position < tier.log.end:
        yield OffsetRange(position, tier.log.end)


def _listed(tier: PartitionTier) -> Iterator[ListedSegment]:
    """Yield the partition's segments for the report, sorted by base offset."""
    counts: dict[Any, list[OffsetRange]] = {}
    for part in tier.visible:
        counts.setdefault(part.segment.segment_id, []).append(part.offsets)
    overlapping = _overlapping(tier)
    for segment, state in sorted(tier.segments, key=lambda tracked: (tracked[0].base_offset, tracked[0].segment_id)):
        counted = tuple(counts.get(segment.segment_id, ()))
        why = tuple(_not_counted(segment, state, counted, tier))
        yield ListedSegment(segment, state, counted, why, segment.segment_id in overlapping)


def _not_counted(
    segment: RemoteLogSegment, state: RemoteLogSegmentState, counted: Sequence[OffsetRange], tier: PartitionTier
) -> Iterator[NotCounted]:
    if state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        copying = state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        yield NotCounted.COPYING if copying else NotCounted.DELETING
        return
    if tier.lineage is None:
        return
    in_lineage = visible_segments([segment], tier.lineage, 0)
    readable = visible_segments([segment], tier.lineage, tier.log.start)
    if _size(in_lineage) < len(segment.offsets):
        yield NotCounted.OTHER_EPOCHS
    if _size(readable) < _size(in_lineage):
        yield NotCounted.BELOW_LOG_START
    if sum(map(len, counted)) < _size(readable):
        yield NotCounted.OVERLAPPED


def _size(parts: Iterable[VisibleSegment]) -> int:
    return sum(len(part.offsets) for part in parts)


def _overlapping(tier: PartitionTier) -> set[Any]:
    """Return the ids of finished segments that share offsets with another finished segment."""
    finished = [segment for segment, state in tier.segments if state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    overlapping: set[Any] = set()
    furthest: RemoteLogSegment | None = None
    for segment in sorted(finished, key=lambda segment: segment.base_offset):
        if furthest is not None and segment.base_offset <= furthest.end_offset:
            overlapping |= {segment.segment_id, furthest.segment_id}
        if furthest is None or segment.end_offset > furthest.end_offset:
            furthest = segment
    return overlapping


def render_segments(report: SegmentReport) -> RenderableType:
    """Render the segment report for a terminal: a table of the segments, and lines with sums and errors."""
    table = Table("partition", title=f"tiered segments, located by {report.located_by}")
    for column in ("base offset", "last offset", "MiB"):
        table.add_column(column, justify="right")
    for column in ("leader epochs", "newest timestamp", "segment id", "state", "counts for the log"):
        table.add_column(column, overflow="fold")
    for partition in report.partitions:
        for listed in partition.segments:
            table.add_row(str(partition.partition), *_cells(listed), style="yellow" if listed.orphan else "")
        table.add_section()
    lines = [f"{each.partition}: {SegmentSums.of(each.segments)}{_not_tiered(each)}" for each in report.partitions]
    lines += [f"topic {topic}: {sums}" for topic, sums in report.topics()]
    if report.only_counted:
        lines.append(
            "Brokers and gateways name only segments that count, and no timestamps: remote.log.locator=metadata-topic "
            "shows the others, too."
        )
    faults = [Text(f"{partition}: {reason}", "red") for partition, reason in report.faults]
    return Group(table, *map(Text, lines), *faults)


def _cells(listed: ListedSegment) -> Iterator[str]:
    segment = listed.segment
    yield f"{segment.base_offset:,}"
    yield f"{segment.end_offset:,}"
    yield f"{segment.size / (1 << 20):,.1f}"
    yield ", ".join(f"{entry.epoch} from {entry.start_offset:,}" for entry in segment.leader_epochs)
    yield "" if segment.max_timestamp < 0 else show_time(segment.max_timestamp)
    yield uuid_to_text(segment.segment_id)
    yield listed.state.name.lower().replace("_segment_", " ")
    counts = "yes" if listed.counts == (segment.offsets,) else _ranges(listed.counts, " and ") or "no"
    yield counts + (f": {'; '.join(listed.not_counted)}" if listed.not_counted else "")


def _not_tiered(listed: ListedPartition) -> str:
    return f"; not tiered: {_ranges(listed.not_tiered, ', ')}" if listed.not_tiered else ""


def _ranges(ranges: Iterable[OffsetRange], separator: str) -> str:
    return separator.join(f"{offsets.start:,} to {offsets.end - 1:,}" for offsets in ranges)
