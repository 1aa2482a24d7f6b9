"""`tiered-stream ingest`: ingest Kafka topics into Delta tables."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, LANE, TABLE, TRIGGER
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.settings_files import command_settings

INGEST_EXIT_CODES = (
    "Exit codes: 0 all rows are landed; 1 a query failed, or no broker responds; 2 refused, and no query was started; "
    "130 stopped by Ctrl-C; 143 stopped by SIGTERM. After 1, 130 or 143, the next run goes on."
)


@cli.with_grouped_arguments
def ingest(
    *,
    settings: Annotated[Path | None, typer.Option(help="A settings file, see conf/ingest_to_delta.properties.")] = None,
    table: Annotated[str | None, typer.Option(help="The Delta table: a path, or a name in the catalog.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="The query's checkpoint location.")] = None,
    trigger: Annotated[str | None, typer.Option(help="availableNow, or an interval such as '10 seconds'.")] = None,
    lane: Annotated[str | None, typer.Option(help="auto, direct (tasks write the table's files) or spark.")] = None,
    option: cli.Assignments = None,
    metrics_file: Annotated[Path | None, typer.Option(help="Write what reading cost to this file, as JSON.")] = None,
    spark: cli.SparkArguments,
) -> None:
    """Ingest Kafka topics into Delta tables.

    Outside of spark-submit the command starts a local Spark.
    """
    with cli.exit_codes():
        # Imported late, because other commands need no Spark.
        from tiered_stream.delta.catalog.session_checks import session_builder
        from tiered_stream.ingest.ingest_run import console, run

    with cli.exit_codes(*cli.WRONG_INPUT, console=console):
        given = {TABLE: table, CHECKPOINT: checkpoint, TRIGGER: trigger, LANE: lane}
        own = command_settings(settings, option, {name: value for name, value in given.items() if value})
        if metrics_file:
            _check_writable(metrics_file)
        outcome = run(own, session_builder("ingest_to_delta", spark.properties_file, spark.spark_conf))
    code = cli.FAILED if outcome.failed else cli.SIGNALED + outcome.stopped_by if outcome.stopped_by else 0
    if metrics_file:
        try:
            metrics_file.write_text(json.dumps(asdict(outcome.total())))
        except OSError as error:
            console.print(f"--metrics-file: {error}", style="red", markup=False)
            code = code or cli.FAILED
    if code:
        raise typer.Exit(code)


def _check_writable(file: Path) -> None:
    """Raise ConfigurationError if the file is a folder, or the user is not authorized to write it or its folder."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir() or not file.parent.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigurationError(
            f"--metrics-file {file} cannot be written: give a file that you are authorized to write"
        )
