"""`tiered-stream lag`: show how far a streaming query is behind its topics."""

from __future__ import annotations

import time
from typing import Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, job_settings, source_options
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.settings_files import POSITIONS, command_settings, without


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
    from tiered_stream.options.parsing import parse_options

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
