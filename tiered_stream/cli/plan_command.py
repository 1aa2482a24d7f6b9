"""`tiered-stream plan`: show what a read would fetch and cost, without reading."""

from __future__ import annotations

from typing import Annotated

import typer

from tiered_stream.cli.arguments import (
    Assign,
    Assignments,
    GetPrice,
    GibPrice,
    Json,
    SettingsFile,
    Subscribe,
    SubscribePattern,
    exit_codes,
    reads,
    show,
    source_settings,
)
from tiered_stream.process.cores import usable_cores


def plan(
    settings: SettingsFile = None,
    option: Assignments = None,
    subscribe: Subscribe = None,
    subscribe_pattern: SubscribePattern = None,
    assign: Assign = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks at once; default: as many as this machine has cores.")
    ] = None,
    get_price: GetPrice = None,
    gib_price: GibPrice = None,
    json: Json = False,
) -> None:
    """Show what a batch query with these options would read: splits, segments, GETs, offsets from brokers, and cost.

    The read is planned like the query, but no records are read. Without starting and ending options, it is a read of
    all records.
    """
    with exit_codes():
        given = source_settings(settings, option, reads(subscribe, subscribe_pattern, assign))
        # Imported late, because other commands do not need Kafka.
        from tiered_stream.inspection.read_plan import planned_cost
        from tiered_stream.options.parsing import parse_options
        from tiered_stream.plan.read_cost import priced, render_cost

        parsed = parse_options(given, streaming=False)
        cost = planned_cost(parsed, tasks or usable_cores(), priced(get_price, gib_price))
        show(cost.to_json() if json else render_cost(cost, "a batch read"))
