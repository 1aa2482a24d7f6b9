"""What a replay will read, said before anything is read: offsets, segments, bytes, GETs, time and money.

Planned by the run's own planner, micro-batch by micro-batch, so that bytes and GETs are what the run then takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

import orjson

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.delta.data_files_source import ASSUMED_RECORD_BYTES
from tiered_stream.delta.ingest_settings import source_options
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import OffsetRange, Split, TopicPartition
from tiered_stream.options.choices import Prefer
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.positions import TimeRange
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
    if per_1000_gets is None and per_gib is None:
        return Prices()
    known = Prices()
    return Prices(
        known.per_1000_gets if per_1000_gets is None else per_1000_gets,
        known.per_gib if per_gib is None else per_gib,
        as_of="the command line",
    )


@dataclass(frozen=True, slots=True)
class PartitionEstimate:
    """Of one partition. `storage_bytes` are of the log; `skipped` offsets are in segments that an exact replay need
    not read; `after_end` offsets lie between Kafka's end for `to` and the log's.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    segments: int
    storage_bytes: int
    gets: int
    broker_offsets: int
    broker_reason: str | None
    skipped: int
    after_end: int

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
        arguments, behind = self.plan.arguments, self.total("after_end")
        notes = []
        if self.plan.times.to_ms is not None and behind:
            where = f"{behind:,} offsets lie behind the first record at or after --to"
            notes.append(
                f"{where}: --exact reads them too, and takes those records whose time is within the range"
                if arguments.exact
                else f"{where}. Where timestamps go back and forth, some may be of earlier records: --exact takes "
                "those, too, and none that is outside the range"
            )
        elif self.plan.times.to_ms is not None and not arguments.exact:
            notes.append("--exact would read the same offsets: nothing lies behind the first record at or after --to")
        return notes

    def to_json(self) -> str:
        """The whole of it, for programs."""
        totals = ("offsets", "segments", "storage_bytes", "gets", "broker_offsets", "skipped", "after_end")
        found: dict[str, Any] = {
            "name": self.plan.name,
            "times": show_range(self.plan.times),
            "from_ms": self.plan.times.from_ms,
            "to_ms": self.plan.times.to_ms,
            "exact": self.plan.arguments.exact,
            "target": self.plan.arguments.target,
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
    plan: ReplayPlan,
    settings: Mapping[str, str],
    *,
    tasks: int,
    max_bytes_per_second: int | None = None,
    prices: Prices | None = None,
) -> Estimate:
    """What the plan reads; nothing is written. `settings` are those of the run's query (`Target.settings`).

    Raises:
        DataLossError: a log or an archive does not hold the plan's offsets.
        BrokerError, StorageError: offsets or segments cannot be looked up.
    """
    options = parse_options(source_options(settings), streaming=True)
    tallies = {partition: _Tally() for partition in plan.ranges}
    source = open_log_source(options)
    try:
        after = _after_end(plan, source.offset_reader)
        for split in _splits(options, source):
            tallies[split.topic_partition].add(split, options)
        partitions = tuple(
            tallies[partition].figures(partition, plan.ranges[partition], after[partition], options, source)
            for partition in sorted(plan.ranges)
        )
    finally:
        source.close()
    return Estimate(plan, partitions, tasks, max_bytes_per_second, prices or Prices())


def _splits(options: Options, source: LogSource) -> Iterator[Split]:
    """What the tasks of all micro-batches read."""
    planner = StreamPlanner(options, source.offset_reader, source.locator)
    planner.prepare_for_available_now()
    start = planner.initial()
    while (end := planner.next_end(start, limited=True)) != start:
        yield from splits_for(planner.ranges(start, end), options, source.locator, planner.topic_ids)
        start = end


@dataclass(slots=True)
class _Tally:
    """What the splits of one partition add up to."""

    segments: set[UUID] = field(default_factory=set)
    storage_bytes: int = 0
    gets: int = 0
    offsets: int = 0
    broker_offsets: int = 0
    brokers_until: int = 0

    def add(self, split: Split, options: Options) -> None:
        self.offsets += len(split.offsets)
        self.storage_bytes += split.storage_bytes
        self.segments.update(location.segment.segment_id for location in split.locations)
        if split.locations:
            parts = [(location.segment, location.bytes) for location in split.locations]
            fetcher = split_fetcher(split.locations, options)
            self.gets += sum(1 for _ in requests_of(fetcher, parts, options.fetch))
        else:
            self.broker_offsets += len(split.offsets)
            self.brokers_until = max(self.brokers_until, split.offsets.end)

    def figures(
        self, partition: TopicPartition, offsets: OffsetRange, after_end: int, options: Options, source: LogSource
    ) -> PartitionEstimate:
        return PartitionEstimate(
            topic=partition.topic,
            partition=partition.partition,
            start_offset=offsets.start,
            end_offset=offsets.end,
            segments=len(self.segments),
            storage_bytes=self.storage_bytes,
            gets=self.gets,
            broker_offsets=self.broker_offsets,
            broker_reason=self._reason(offsets, options, source) if self.broker_offsets else None,
            skipped=len(offsets) - self.offsets,
            after_end=after_end,
        )

    def _reason(self, offsets: OffsetRange, options: Options, source: LogSource) -> str:
        if source.locator is None:
            return NO_LOCATOR
        if options.prefer is Prefer.LOCAL:
            return KEPT_LOCALLY
        return NOT_TIERED_YET if self.brokers_until == offsets.end else NO_SEGMENT


def _after_end(plan: ReplayPlan, reader: OffsetReader) -> dict[TopicPartition, int]:
    """By partition, the offsets between the first record at or after `to` and the log's end."""
    match plan.times:
        case TimeRange(to_ms=int(to_ms)):
            found = reader.for_timestamps(dict.fromkeys(plan.ranges, to_ms))
        case _:
            found = {}
    latest = reader.latest(plan.ranges.keys()) if found else {}
    ends = {partition: found.get(partition) for partition in plan.ranges}
    return {each: 0 if end is None else max(0, latest[each] - end) for each, end in ends.items()}
