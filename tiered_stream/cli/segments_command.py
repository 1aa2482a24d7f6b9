"""`tiered-stream segments`: list tiered segments, and show for each segment whether its records are part of the log."""

from __future__ import annotations

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.options.settings_files import ENDS, STARTS, without


@cli.command
def segments(settings: cli.SettingsArguments, json: cli.Json = False) -> None:
    """List the tiered segments of topics: offsets, sizes, leader epochs, states, and whether they count for the log.

    A segment counts if its copy is finished and its leader epochs belong to the log's lineage. Other segments, and
    segments that overlap, do not harm readers, but take up storage. If a broker or gateway locates the segments, only
    segments that count are listed. If the options name a storage, one byte of a segment is read there, so that wrong
    settings are found.
    """
    # Imported late, because other commands do not need Kafka.
    from tiered_stream.inspection.segment_report import SegmentReport, render_segments
    from tiered_stream.inspection.tier_contents import check_objects, tier_contents
    from tiered_stream.options.parsing import parse_options

    options = parse_options(without(settings.source_options(), STARTS + ENDS), streaming=True)
    contents = tier_contents(options)
    report = SegmentReport.of(contents)
    cli.show(report.to_json() if json else render_segments(report))
    if report.faults:
        raise typer.Exit(cli.FAILED)
    check_objects(options, contents)
