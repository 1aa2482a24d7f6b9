"""`tiered-stream plan`: show what a read would fetch and cost, without reading."""

from __future__ import annotations

from typing import Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.process.resources import usable_cores


@cli.command
def plan(
    *,
    settings: cli.SettingsArguments,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks at once; default: as many as this machine has cores.")
    ] = None,
    prices: cli.PriceArguments,
    json: cli.Json = False,
) -> None:
    """Show what a batch query with these options would read: splits, segments, GETs, offsets from brokers, and cost.

    The query is planned, but no records are read. Without starting and ending options, the plan has all records.
    """
    # Imported late, because other commands do not need Kafka.
    from tiered_stream.inspection.read_plan import planned_cost
    from tiered_stream.options.parsing import parse_options
    from tiered_stream.plan.read_cost import render_cost

    options = parse_options(settings.source_options(), streaming=False)
    cost = planned_cost(options, tasks or usable_cores(), prices.prices())
    cli.show(cost.to_json() if json else render_cost(cost, "a batch read"))
