"""A dry run's figures for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.replay.estimate import Estimate, PartitionEstimate
from tiered_stream.replay.times import show_range

_COLUMNS = ("offsets", "records at most", "segments", "MiB", "GETs", "from brokers")


def render(estimate: Estimate) -> RenderableType:
    """The figures of each partition, their sums, and what they mean."""
    table = Table(title=f"replay {estimate.plan.name}: {show_range(estimate.plan.times)}")
    table.add_column("partition")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for each in estimate.partitions:
        table.add_row(f"{each.topic}-{each.partition}", *_cells(each))
    table.add_section()
    totals = (estimate.total("segments"), _mib(estimate.total("storage_bytes")), estimate.total("gets"))
    shown = [f"{total:,}" if isinstance(total, int) else total for total in totals]
    table.add_row("all", "", f"{estimate.total('offsets'):,}", *shown, f"{estimate.total('broker_offsets'):,}")
    return Group(table, *(Text(line) for line in _lines(estimate)))


def _cells(each: PartitionEstimate) -> list[str]:
    offsets = f"{each.start_offset:,} to {each.end_offset - 1:,}" if each.offsets else "none"
    counts = f"{each.offsets - each.skipped:,}", f"{each.segments:,}", _mib(each.storage_bytes), f"{each.gets:,}"
    return [offsets, *counts, f"{each.broker_offsets:,}"]


def _lines(estimate: Estimate) -> list[str]:
    prices = estimate.prices
    reasons = {each.broker_reason for each in estimate.partitions if each.broker_reason}
    return [
        *(f"From brokers: {reason}." for reason in sorted(reasons)),
        *(f"{note}." for note in estimate.notes()),
        f"About {estimate.seconds:,.0f} s with {estimate.tasks} tasks at once.",
        f"The storage charges about ${estimate.dollars:,.4f}: ${prices.per_1000_gets} for 1,000 GETs and "
        f"${prices.per_gib} a GiB (prices of {prices.as_of}).",
    ]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f}"
