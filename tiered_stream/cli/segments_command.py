"""`tiered-stream segments`: what is tiered, segment by segment, and whether it counts for the log."""

from __future__ import annotations

import typer

from tiered_stream.cli.arguments import (
    FAILED,
    Assign,
    Assignments,
    Json,
    SettingsFile,
    Subscribe,
    SubscribePattern,
    exit_codes,
    reads,
    show,
    source_settings,
)
from tiered_stream.options.command_settings import ENDS, STARTS, without


def segments(
    settings: SettingsFile = None,
    option: Assignments = None,
    subscribe: Subscribe = None,
    subscribe_pattern: SubscribePattern = None,
    assign: Assign = None,
    json: Json = False,
) -> None:
    """List what is tiered of topics: offsets, sizes, leader epochs, states, and segments that do not count.

    Segments count whose copy is finished and whose leader epochs are those of the log. What is there besides, or
    overlaps, does no harm to readers; it takes place. Where a broker or gateway says what is tiered, only segments
    that count are known.
    """
    with exit_codes():
        given = without(source_settings(settings, option, reads(subscribe, subscribe_pattern, assign)), STARTS + ENDS)
        # Imported late: other commands need no Kafka.
        from tiered_stream.inspect.segment_report import SegmentReport, render_segments
        from tiered_stream.inspect.tier_contents import tier_contents
        from tiered_stream.options.parsing import parse_options

        report = SegmentReport.of(tier_contents(parse_options(given, streaming=True)))
        show(report.to_json() if json else render_segments(report))
    if report.faults:
        raise typer.Exit(FAILED)
