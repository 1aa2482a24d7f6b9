"""Estimate of the cost of a read before anything is read: splits, segments, bytes, GETs, time and money.

The figures are sums over the splits that a query with the same options would read. The GETs are counted as if each GET
had the usual size (`remote.fetch.request.bytes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar, Self
from uuid import UUID

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import ASSUMED_RECORD_BYTES, OffsetRange, PartitionRanges, Split, TopicPartition
from tiered_stream.options.choices import Prefer
from tiered_stream.options.parsing import Options
from tiered_stream.plan.batch import batch_offsets
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.tiering_delay import copy_lags
from tiered_stream.read.task_storage import split_fetcher
from tiered_stream.storage.read_ahead import requests_of

STORAGE_BYTES_PER_SECOND = 60 << 20
"""Assumed rate, in bytes a second, at which one task reads, decodes and writes data from storage.

It is half of the rate on an idle machine, so that the estimate of the time is rarely too short.
"""
BROKER_BYTES_PER_SECOND = 15 << 20

NOT_TIERED_YET = "not tiered yet: the active segment, or one that waits for it"
NO_LOCATOR = "nothing says where segments are (remote.log.locator)"
STILL_LOCAL = "still on the brokers' own disks (remote.prefer=local)"
NO_SEGMENT = "no tiered segment holds them"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of the storage in US dollars, for 1,000 GETs and for a GiB read.

    The defaults are the prices of S3 Standard in us-east-1 on the day `as_of`, where reading within the region costs
    only the requests.
    """

    per_1000_gets: float = 0.0004
    per_gib: float = 0.0
    as_of: str = "2025-06-01 for S3 Standard"


def prices_or_default(per_1000_gets: float | None, per_gib: float | None) -> Prices:
    """Return `Prices` with the given prices in US dollars; a price that is None has the default of `Prices`."""
    prices = {"per_1000_gets": per_1000_gets, "per_gib": per_gib}
    explicit = {name: price for name, price in prices.items() if price is not None}
    return replace(Prices(), **explicit, as_of="the command line") if explicit else Prices()


@dataclass(slots=True)
class PartitionCost:
    """Cost of reading the offsets of one partition, from `start_offset` to `end_offset` (exclusive).

    `splits` and `segments` are the numbers of splits and of tiered segments that are read. `storage_bytes` is the
    number of bytes that `gets` GETs read from the storage. `broker_reasons` has the numbers of offsets that are read
    from the brokers, by reason. `skipped` is the number of offsets in segments that need not be read.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    splits: int = 0
    segments: int = 0
    storage_bytes: int = 0
    gets: int = 0
    broker_reasons: dict[str, int] = field(default_factory=dict)
    skipped: int = 0

    @classmethod
    def of(cls, partition: TopicPartition, offsets: OffsetRange) -> Self:
        """Return the cost of the range `offsets` before any split is added: all its offsets count as `skipped`."""
        return cls(partition.topic, partition.partition, offsets.start, offsets.end, skipped=len(offsets))

    @property
    def offsets(self) -> int:
        """Number of offsets in the partition's range, which is an upper bound of its number of records."""
        return self.end_offset - self.start_offset

    @property
    def broker_offsets(self) -> int:
        """Number of offsets that are read from the brokers."""
        return sum(self.broker_reasons.values())

    @property
    def broker_reason(self) -> str | None:
        """Reason for which most of the `broker_offsets` are read from the brokers; None if there are none."""
        return max(self.broker_reasons, key=self.broker_reasons.__getitem__, default=None)

    def figures(self) -> dict[str, Any]:
        """Return the cost as a dictionary for JSON."""
        names = ("offsets", "broker_offsets", "broker_reason")
        return asdict(self) | {name: getattr(self, name) for name in names}

    def add(self, split: Split, options: Options, source: LogSource, counted: set[UUID], *, is_tail: bool) -> None:
        """Add the cost of one split of this partition, and subtract the split's number of offsets from `self.skipped`.

        A split without locations is read from the brokers. It changes only `splits`, `skipped` and `broker_reasons`.

        Args:
            is_tail: true if no later offset of the partition's range is read from the storage.
            counted: ids of segments that earlier calls, also of other partitions, have counted. A segment of the split
                adds 1 to `self.segments` only if its id is not in this set. The id is then added to the set.
        """
        self.splits += 1
        self.skipped -= len(split.offsets)
        if not split.locations:
            reason = _broker_reason(options, source, is_tail=is_tail)
            self.broker_reasons[reason] = self.broker_reasons.get(reason, 0) + len(split.offsets)
            return
        parts = [(location.segment, location.bytes) for location in split.locations]
        segment_ids = {segment.segment_id for segment, _ in parts} - counted
        counted |= segment_ids
        self.segments += len(segment_ids)
        self.storage_bytes += split.storage_bytes
        fetcher = split_fetcher(split.locations, options)
        self.gets += sum(1 for _ in requests_of(fetcher, parts, options.fetch))


def total_costs(
    ranges: PartitionRanges, splits: Iterable[Split], options: Options, source: LogSource
) -> tuple[PartitionCost, ...]:
    """Return the cost of reading each partition's offset range, sorted by partition.

    If offsets are not tiered yet, and the brokers delay the copy of closed segments (`CopyLag`), the delay is added to
    the reason in `broker_reasons`.

    Args:
        splits: all splits of the ranges.
        source: log source whose locator was used to plan `splits`.
    """
    costs = {partition: PartitionCost.of(partition, offsets) for partition, offsets in ranges.items()}
    segments: set[UUID] = set()
    splits = list(splits)
    tails = _tails(ranges, splits)
    for split in splits:
        is_tail = split.offsets.start >= tails[split.topic_partition]
        costs[split.topic_partition].add(split, options, source, segments, is_tail=is_tail)
    waiting = {partition.topic for partition, cost in costs.items() if NOT_TIERED_YET in cost.broker_reasons}
    lags = copy_lags(source.offset_reader, waiting) if waiting else {}
    for partition, cost in costs.items():
        if NOT_TIERED_YET in cost.broker_reasons and partition.topic in lags:
            reason = f"{NOT_TIERED_YET}; {lags[partition.topic]}"
            cost.broker_reasons[reason] = cost.broker_reasons.pop(NOT_TIERED_YET)
    return tuple(costs[partition] for partition in sorted(costs))


def broker_read_lines(costs: Iterable[PartitionCost]) -> list[str]:
    """Return a line of text for each reason why offsets are read from brokers, with their number and percentage."""
    total = 0
    reasons: Counter[str] = Counter()
    for cost in costs:
        total += cost.offsets
        reasons.update(cost.broker_reasons)
    return [
        f"From brokers: {count:,} of {total:,} offsets ({count / total:.1%}): {reason}."
        for reason, count in sorted(reasons.items())
    ]


def _tails(ranges: PartitionRanges, splits: Iterable[Split]) -> dict[TopicPartition, int]:
    """Return by partition the offset from which on all splits of its range are read from the brokers."""
    tails = {partition: offsets.end for partition, offsets in ranges.items()}
    for split in sorted(splits, key=lambda split: split.offsets.end, reverse=True):
        if not split.locations and split.offsets.end == tails[split.topic_partition]:
            tails[split.topic_partition] = split.offsets.start
    return tails


def _broker_reason(options: Options, source: LogSource, *, is_tail: bool) -> str:
    """Return as text the reason why a split, which has no bytes in the storage, is read from the brokers.

    `is_tail`: no later offset of the partition's range is read from the storage.
    """
    if source.locator is None:
        return NO_LOCATOR if source.why_brokers is None else source.why_brokers.text
    if options.prefer is Prefer.LOCAL:
        return STILL_LOCAL
    return NOT_TIERED_YET if is_tail else NO_SEGMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """Cost of a whole read by `tasks` tasks, which run at the same time.

    Together, the tasks fetch at most `max_bytes_per_second` bytes a second from the storage; None: no limit.
    """

    partitions: Sequence[PartitionCost]
    tasks: int
    max_bytes_per_second: int | None
    prices: Prices
    TOTALS: ClassVar[tuple[str, ...]] = (
        "offsets", "splits", "segments", "storage_bytes", "gets", "broker_offsets", "skipped",
    )  # fmt: skip

    def total(self, name: str) -> int:
        """Return the sum over all partitions of the attribute of `PartitionCost` with this name."""
        return sum(getattr(partition, name) for partition in self.partitions)

    @property
    def seconds(self) -> float:
        """Estimated duration of the read in seconds."""
        storage = self.total("storage_bytes")
        located = self.total("offsets") - self.total("broker_offsets") - self.total("skipped")
        record_bytes = storage / located if located > 0 else ASSUMED_RECORD_BYTES
        brokers = self.total("broker_offsets") * record_bytes
        busy = (storage / STORAGE_BYTES_PER_SECOND + brokers / BROKER_BYTES_PER_SECOND) / self.tasks
        return max(busy, storage / self.max_bytes_per_second if self.max_bytes_per_second else 0.0)

    @property
    def dollars(self) -> float:
        """Estimated charge of the storage in US dollars."""
        per_get = self.prices.per_1000_gets / 1000
        return self.total("gets") * per_get + self.total("storage_bytes") / (1 << 30) * self.prices.per_gib

    def figures(self) -> dict[str, Any]:
        """Return the partitions' costs, sums, time (seconds) and price (US dollars) as a dictionary for JSON."""
        return {
            "partitions": [partition.figures() for partition in self.partitions],
            "total": {name: self.total(name) for name in self.TOTALS},
            "tasks": self.tasks,
            "seconds": round(self.seconds, 1),
            "dollars": round(self.dollars, 6),
            "prices": asdict(self.prices),
        }

    def to_json(self) -> str:
        """Return `figures` as JSON."""
        return orjson.dumps(self.figures(), option=orjson.OPT_INDENT_2).decode()


def planned_cost(options: Options, tasks: int, prices: Prices) -> ReadCost:
    """Plan the batch query, and return the cost of its read with `tasks` parallel tasks.

    Args:
        options: options of the batch query.
        prices: the storage's prices of requests and bytes.

    Raises:
        ConfigurationError: a start lies beyond its end, or positions do not fit the partitions.
        DataLossError: offsets to read are no longer in a log, or a topic was deleted and created again.
        OpenTransactionError: an end lies beyond the first offset of an open transaction.
        BrokerError, StorageError: offsets or segments cannot be looked up.
    """
    with closing(open_log_source(options)) as source:
        ranges, topic_ids = batch_offsets(options, source)
        partitions = total_costs(ranges, splits_for(ranges, options, source.locator, topic_ids), options, source)
    return ReadCost(partitions=partitions, tasks=tasks, max_bytes_per_second=None, prices=prices)


def _duration(seconds: float) -> str:
    return f"about {seconds:,.0f} s" if seconds >= 1 else "less than 1 s"


_RENDERED = ("splits", "segments", "storage_bytes", "gets", "broker_offsets")


def render_cost(cost: ReadCost, title: str) -> RenderableType:
    """Return a table of the costs of partitions, and the estimated time and price, for a terminal."""
    table = Table("partition", title=title)
    for column in ("offsets", "records at most", "splits", "segments", "MiB", "GETs", "from brokers"):
        table.add_column(column, justify="right")

    def add_row(name: str, offsets: str, records: int, splits: int, segments: int, size: int, *others: int) -> None:
        mib = f"{size / (1 << 20):,.1f}"
        table.add_row(name, offsets, f"{records:,}", f"{splits:,}", f"{segments:,}", mib, *map("{:,}".format, others))

    for partition in cost.partitions:
        offsets = f"{partition.start_offset:,} to {partition.end_offset - 1:,}" if partition.offsets else "none"
        name, records = f"{partition.topic}-{partition.partition}", partition.offsets - partition.skipped
        add_row(name, offsets, records, *attrgetter(*_RENDERED)(partition))
    table.add_section()
    add_row("all", "", *map(cost.total, ("offsets", *_RENDERED)))
    prices = cost.prices
    lines = [
        *broker_read_lines(cost.partitions),
        f"Reading takes {_duration(cost.seconds)} with {cost.tasks} tasks at once. Spark's start and the writing of "
        "tables take time, too.",
        f"The storage charges about ${cost.dollars:,.4f}: ${prices.per_1000_gets} for 1,000 GETs and "
        f"${prices.per_gib} a GiB (prices of {prices.as_of}).",
    ]
    return Group(table, *map(Text, lines))
