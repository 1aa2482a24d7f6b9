"""Estimate of the offsets, bytes and requests of a replay, with notes on what the option `--exact` changes.

All micro-batches are planned in the same way as a run of the replay plans them. No record is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import orjson
from rich.console import RenderableType

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.delta.settings.ingest_settings import source_options
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import PartitionOffsets, Split, TopicPartition
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.plan.read_cost import PartitionCost, Prices, ReadCost, render_cost, total_costs
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.times import show_range


@dataclass(slots=True)
class PartitionEstimate(PartitionCost):
    """Estimated cost of reading one partition in a replay.

    `after_end` is the number of offsets from the first record at or after `--to` up to the log's end; 0 without `--to`.
    `skipped` is the number of offsets that an exact replay does not read, because all their records are older than
    `--from`.
    """

    after_end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(ReadCost):
    """Estimated cost of a whole replay: the replay's plan, the cost of each partition, and sums, time and price."""

    plan: ReplayPlan = field(repr=False)
    partitions: Sequence[PartitionEstimate]
    TOTALS: ClassVar[tuple[str, ...]] = (*ReadCost.TOTALS, "after_end")

    def notes(self) -> list[str]:
        """Return notes on the offsets from the first record at or after `--to` on, which only an exact replay reads.

        The list has at most one note. It is empty if no partition has such offsets, and the replay is exact or has no
        `--to`.
        """
        exact, after_end = self.plan.arguments.exact, self.total("after_end")
        if not after_end:
            if exact or self.plan.times.to_ms is None:
                return []
            return ["--exact would read the same offsets: nothing lies behind the first record at or after --to"]
        text = f"{after_end:,} offsets lie behind the first record at or after --to"
        if exact:
            return [f"{text}: --exact reads them too, and takes those records whose time is within the range"]
        return [
            f"{text}. Where timestamps go back and forth, some may be of earlier records: --exact takes those, too, "
            "and none that is outside the range"
        ]

    def to_json(self) -> str:
        """Return the whole estimate as JSON."""
        plan = self.plan
        figures: dict[str, Any] = {
            "name": plan.name,
            "times": show_range(plan.times),
            **asdict(plan.times),
            "exact": plan.arguments.exact,
            "target": plan.arguments.target,
            **self.figures(),
            "notes": self.notes(),
        }
        return orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode()


def estimate(
    plan: ReplayPlan, settings: Mapping[str, str], tasks: int, max_bytes_per_second: int | None, prices: Prices
) -> Estimate:
    """Return the estimated cost of reading the offset ranges of a plan; write nothing.

    Args:
        plan: the plan of the replay.
        settings: settings of the query that would run the plan (`Target.settings`).
        tasks: number of parallel tasks.
        max_bytes_per_second: maximum bytes per second that all tasks fetch together; None: no limit.
        prices: prices of requests and bytes, for the estimated cost.

    Raises:
        DataLossError: a log or an archive does not hold the plan's offsets.
        BrokerError, StorageError: offsets or segments cannot be looked up.
    """
    options = parse_options(source_options(settings), streaming=True)
    with closing(open_log_source(options, warns=False)) as source:  # the look-up of the offsets has warned
        costs = {partition: PartitionEstimate.of(partition, offsets) for partition, offsets in plan.ranges.items()}
        for partition, after_end in _after_end(plan, source.offset_reader).items():
            costs[partition].after_end = after_end
        partitions = total_costs(costs, _splits(options, source), options, source)
    return Estimate(
        plan=plan, partitions=partitions, tasks=tasks, max_bytes_per_second=max_bytes_per_second, prices=prices
    )


def _splits(options: Options, source: LogSource) -> Iterator[Split]:
    """Yield the splits of all micro-batches of the replay."""
    planner = StreamPlanner(options, source.offset_reader, source.locator)
    planner.prepare_for_available_now()
    start: PartitionOffsets = planner.initial()
    while (end := planner.next_end(start, limited=True)) != start:
        yield from splits_for(planner.ranges(start, end), options, source.locator, planner.topic_ids)
        start = end


def _after_end(plan: ReplayPlan, reader: OffsetReader) -> dict[TopicPartition, int]:
    """Return the number of offsets from the first record at or after `--to` up to the log's end, by partition.

    Partitions without a record at or after `--to` are left out. If the plan has no `--to`, the result is empty.
    """
    if plan.times.to_ms is None:
        return {}
    offsets = reader.for_timestamps(dict.fromkeys(plan.ranges, plan.times.to_ms))
    latest = reader.latest(plan.ranges.keys())
    return {
        partition: max(0, latest[partition] - offset) for partition, offset in offsets.items() if offset is not None
    }


def render(estimate: Estimate) -> RenderableType:
    """Render an estimate for a terminal: the figures of each partition, their sums, and the notes."""
    title = f"replay {estimate.plan.name}: {show_range(estimate.plan.times)}"
    return render_cost(estimate, title, estimate.notes())
