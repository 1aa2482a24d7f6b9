"""`tiered-stream segments`, `plan` and `lag`: reports on tiered segments, on the cost of a read, and on a query's lag.

The commands read no records, except that `lag` reads one record of each partition.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, job_settings, source_options
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.settings_files import ENDS, POSITIONS, STARTS, command_settings, without
from tiered_stream.process.resources import usable_cores

INSPECTION_EXIT_CODES = "Exit codes: 0 done; 1 failed while it looked; 2 refused; 130 stopped by Ctrl-C."


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

    options = parse_options(without(settings.source_options(), STARTS + ENDS), streaming=True)
    contents = tier_contents(options)
    report = SegmentReport.of(contents)
    cli.show(report.to_json() if json else render_segments(report))
    if report.faults:
        raise typer.Exit(cli.FAILED)
    check_objects(options, contents)


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
    from tiered_stream.plan.read_cost import planned_cost, render_cost

    options = parse_options(settings.source_options(), streaming=False)
    cost = planned_cost(options, tasks or usable_cores(), prices.prices())
    cli.show(cost.to_json() if json else render_cost(cost, "a batch read"))


@cli.command
def lag(
    settings: cli.SettingsArguments,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="The query's checkpoint: a folder, or s3a://…; default: the checkpoint in the settings."),
    ] = None,
    properties_file: cli.PropertiesFile = None,
    json: cli.Json = False,
) -> None:
    """Show how far a streaming query is behind: in offsets, in seconds, and how many of the offsets are tiered.

    The query may read with tiered_stream or with Spark's kafka source. The topics come from the query's checkpoint,
    unless the command line names topics. A checkpoint in an object store is accessed with `ingest.storage.*`, like the
    ingest job's table, and with Hadoop's settings (such as fs.s3a) in --properties-file.
    """
    job = command_settings(settings.settings, settings.option, {})
    checkpoint = checkpoint or _job_checkpoint(job)
    # Imported late, because other commands need neither Kafka nor Arrow.
    from tiered_stream.delta.requirements.store_access import storage_without_spark
    from tiered_stream.inspection.lag_report import committed_batch, lag_of, render_lag

    hadoop = cli.SparkArguments(properties_file=properties_file).hadoop_settings()
    batch = committed_batch(checkpoint, storage_without_spark(job, checkpoint, hadoop))
    topics = {"subscribe": ",".join(sorted({partition.topic for partition in batch.offsets}))}
    read = without(source_options(job), POSITIONS) | (settings.subscription() or topics)
    report = lag_of(checkpoint, batch, parse_options(read, streaming=True), time.time_ns() // 1_000_000)
    cli.show(report.to_json() if json else render_lag(report))
    if report.faults:
        raise typer.Exit(cli.FAILED)


def _job_checkpoint(settings: dict[str, str]) -> str:
    checkpoint = job_settings(settings).get(CHECKPOINT)
    if not checkpoint:
        raise ConfigurationError(f"no query is named: give --checkpoint, its checkpointLocation, or set {CHECKPOINT}")
    if "{topic}" in checkpoint:
        raise ConfigurationError(f"{CHECKPOINT} is {checkpoint}, one for each topic: give one of them by --checkpoint")
    return checkpoint
