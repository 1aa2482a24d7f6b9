"""What a replay will read, said before anything is read: offsets, segments, bytes, GETs, time and money.

Planned by the run's own planner, micro-batch by micro-batch, so that bytes and GETs are what the run then takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.delta.data_files_source import ASSUMED_RECORD_BYTES
from tiered_stream.delta.ingest_settings import source_options
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import Split, TopicPartition
from tiered_stream.options.choices import Prefer
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.read import split_fetcher
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.times import show_range
from tiered_stream.storage.read_ahead import requests_of

STORAGE_BYTES_PER_SECOND = 60 << 20
"""That one task reads, decodes and writes: half of what it does on a quiet machine, for an estimate that holds."""
BROKER_BYTES_PER_SECOND = 15 << 20

NOT_TIERED_YET = "not tiered yet: the active segment, or one that waits for it"
NO_LOCATOR = "nothing says where segments are (remote.log.locator)"
KEPT_LOCALLY = "still on the brokers' own disks (remote.prefer=local)"
NO_SEGMENT = "no tiered segment holds them"


@dataclass(frozen=True, slots=True)
class Prices:
    """What the storage charges, in US dollars. The defaults are S3 Standard's in us-east-1 on the day of `as_of`;
    reading within the region costs nothing but the requests.
    """

    per_1000_gets: float = 0.0004
    per_gib: float = 0.0
    as_of: str = "2025-06-01"


def priced(per_1000_gets: float | None, per_gib: float | None) -> Prices:
    """The prices that are given, the others as they are known."""
    prices = {"per_1000_gets": per_1000_gets, "per_gib": per_gib}
    given = {name: price for name, price in prices.items() if price is not None}
    return replace(Prices(), **given, as_of="the command line") if given else Prices()


@dataclass(slots=True)
class PartitionEstimate:
    """Of one partition, added up by splits. `storage_bytes` are of the log; `skipped` offsets are in segments that an
    exact replay need not read; `after_end` offsets lie between Kafka's end for `to` and the log's.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    segments: int = 0
    storage_bytes: int = 0
    gets: int = 0
    broker_offsets: int = 0
    broker_reason: str | None = None
    skipped: int = 0
    after_end: int = 0

    @property
    def offsets(self) -> int:
        """At most so many records."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a whole replay; `tasks` run at once."""

    plan: ReplayPlan = field(repr=False)
    partitions: tuple[PartitionEstimate, ...]
    tasks: int
    max_bytes_per_second: int | None
    prices: Prices

    def total(self, name: str) -> int:
        """The sum of one of the partitions' figures."""
        return sum(getattr(each, name) for each in self.partitions)

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        storage = self.total("storage_bytes")
        located = self.total("offsets") - self.total("broker_offsets") - self.total("skipped")
        record_bytes = storage / located if located > 0 else ASSUMED_RECORD_BYTES
        brokers = self.total("broker_offsets") * record_bytes
        busy = (storage / STORAGE_BYTES_PER_SECOND + brokers / BROKER_BYTES_PER_SECOND) / self.tasks
        return max(busy, storage / self.max_bytes_per_second if self.max_bytes_per_second else 0.0)

    @property
    def dollars(self) -> float:
        """What the storage charges."""
        per_get = self.prices.per_1000_gets / 1000
        return self.total("gets") * per_get + self.total("storage_bytes") / (1 << 30) * self.prices.per_gib

    def notes(self) -> list[str]:
        """What the figures do not say."""
        exact, behind = self.plan.arguments.exact, self.total("after_end")
        if not behind:
            if exact or self.plan.times.to_ms is None:
                return []
            return ["--exact would read the same offsets: nothing lies behind the first record at or after --to"]
        where = f"{behind:,} offsets lie behind the first record at or after --to"
        if exact:
            return [f"{where}: --exact reads them too, and takes those records whose time is within the range"]
        return [
            f"{where}. Where timestamps go back and forth, some may be of earlier records: --exact takes those, too, "
            "and none that is outside the range"
        ]

    def to_json(self) -> str:
        """The whole of it, for programs."""
        totals = ("offsets", "segments", "storage_bytes", "gets", "broker_offsets", "skipped", "after_end")
        plan = self.plan
        found: dict[str, Any] = {
            "name": plan.name,
            "times": show_range(plan.times),
            **asdict(plan.times),
            "exact": plan.arguments.exact,
            "target": plan.arguments.target,
            "partitions": [asdict(each) | {"offsets": each.offsets} for each in self.partitions],
            "total": {name: self.total(name) for name in totals},
            "tasks": self.tasks,
            "seconds": round(self.seconds, 1),
            "dollars": round(self.dollars, 6),
            "prices": asdict(self.prices),
            "notes": self.notes(),
        }
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()


def estimate(
    plan: ReplayPlan, settings: Mapping[str, str], tasks: int, max_bytes_per_second: int | None, prices: Prices
) -> Estimate:
    """What the plan reads; nothing is written. `settings` are those of the run's query (`Target.settings`).

    Raises:
        DataLossError: a log or an archive does not hold the plan's offsets.
        BrokerError, StorageError: offsets or segments cannot be looked up.
    """
    options = parse_options(source_options(settings), streaming=True)
    segments: set[UUID] = set()
    with closing(open_log_source(options)) as source:
        after = _after_end(plan, source.offset_reader)
        found = {
            at: PartitionEstimate(
                at.topic, at.partition, offsets.start, offsets.end, skipped=len(offsets), after_end=after.get(at, 0)
            )
            for at, offsets in plan.ranges.items()
        }
        for split in _splits(options, source):
            partition = found[split.topic_partition]
            partition.skipped -= len(split.offsets)
            if split.locations:
                _add_segments(partition, split, options, segments)
            else:
                partition.broker_offsets += len(split.offsets)
                partition.broker_reason = _why_brokers(split, partition.end_offset, options, source)
    return Estimate(plan, tuple(found[each] for each in sorted(found)), tasks, max_bytes_per_second, prices)


def _splits(options: Options, source: LogSource) -> Iterator[Split]:
    """Those of all micro-batches."""
    planner = StreamPlanner(options, source.offset_reader, source.locator)
    planner.prepare_for_available_now()
    start = planner.initial()
    while (end := planner.next_end(start, limited=True)) != start:
        yield from splits_for(planner.ranges(start, end), options, source.locator, planner.topic_ids)
        start = end


def _add_segments(partition: PartitionEstimate, split: Split, options: Options, known: set[UUID]) -> None:
    parts = [(location.segment, location.bytes) for location in split.locations]
    new = {segment.segment_id for segment, _ in parts} - known
    known |= new
    partition.segments += len(new)
    partition.storage_bytes += split.storage_bytes
    partition.gets += sum(1 for _ in requests_of(split_fetcher(split.locations, options), parts, options.fetch))


def _why_brokers(split: Split, end_offset: int, options: Options, source: LogSource) -> str:
    if source.locator is None:
        return NO_LOCATOR
    if options.prefer is Prefer.LOCAL:
        return KEPT_LOCALLY
    return NOT_TIERED_YET if split.offsets.end == end_offset else NO_SEGMENT


def _after_end(plan: ReplayPlan, reader: OffsetReader) -> dict[TopicPartition, int]:
    """By partition that has any, the offsets between the first record at or after `to` and the log's end."""
    if plan.times.to_ms is None:
        return {}
    found = reader.for_timestamps(dict.fromkeys(plan.ranges, plan.times.to_ms))
    latest = reader.latest(plan.ranges.keys())
    return {each: max(0, latest[each] - offset) for each, offset in found.items() if offset is not None}


def render(estimate: Estimate) -> RenderableType:
    """The figures of each partition, their sums, and what they mean, for a terminal."""
    table = Table("partition", title=f"replay {estimate.plan.name}: {show_range(estimate.plan.times)}")
    for column in ("offsets", "records at most", "segments", "MiB", "GETs", "from brokers"):
        table.add_column(column, justify="right")

    def add_row(name: str, offsets: str, records: int, segments: int, size: int, gets: int, brokers: int) -> None:
        mib = f"{size / (1 << 20):,.1f}"
        table.add_row(name, offsets, f"{records:,}", f"{segments:,}", mib, f"{gets:,}", f"{brokers:,}")

    for each in estimate.partitions:
        offsets = f"{each.start_offset:,} to {each.end_offset - 1:,}" if each.offsets else "none"
        figures = each.offsets - each.skipped, each.segments, each.storage_bytes, each.gets, each.broker_offsets
        add_row(f"{each.topic}-{each.partition}", offsets, *figures)
    table.add_section()
    totals = ("offsets", "segments", "storage_bytes", "gets", "broker_offsets")
    add_row("all", "", *map(estimate.total, totals))
    prices, reasons = estimate.prices, {each.broker_reason for each in estimate.partitions if each.broker_reason}
    lines = [
        *(f"From brokers: {reason}." for reason in sorted(reasons)),
        *(f"{note}." for note in estimate.notes()),
        f"About {estimate.seconds:,.0f} s with {estimate.tasks} tasks at once.",
        f"The storage charges about ${estimate.dollars:,.4f}: ${prices.per_1000_gets} for 1,000 GETs and "
        f"${prices.per_gib} a GiB (prices of {prices.as_of}).",
    ]
    return Group(table, *map(Text, lines))
