"""`tiered-stream redrive`: decode dead letters again, and land the records that now decode in their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tiered_stream.cli.arguments import (
    Assignments,
    Json,
    PropertiesFile,
    SettingsFile,
    SparkConf,
    exit_codes,
    show,
)
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.types import optional, text

if TYPE_CHECKING:
    from rich.table import Table

    from tiered_stream.delta.redrive.redrive_run import RedriveReport

REDRIVE_EXIT_CODES = "Exit codes: 0 done; 1 failed while it ran; 2 refused; 3 dead letters are left; 130 stopped."
_LEFT = 3
_TABLE = optional("ingest.table", text, "The job's table.")


def redrive(
    settings: SettingsFile = None,
    option: Assignments = None,
    topics: Annotated[str | None, typer.Option(help="Of these topics alone, separated by commas.")] = None,
    from_ms: Annotated[int | None, typer.Option(help="Records at or after this time, in ms since 1970.")] = None,
    to_ms: Annotated[int | None, typer.Option(help="Records before this time, in ms since 1970.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would become of them, and change nothing.")
    ] = False,
    json: Json = False,
    properties_file: PropertiesFile = None,
    spark_conf: SparkConf = None,
) -> None:
    """Decode the job's dead letters again with the current settings, and land each record that decodes, once.

    The settings name the tables: ingest.deadLetterTable and ingest.table. Dead letters that still do not decode stay,
    and are reported by topic and reason. Dead letters of a micro-batch that is not finished stay, and are reported as
    pending.
    """
    # Imported late, because other commands do not need Spark.
    from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter
    from tiered_stream.delta.redrive.redrive_run import redrive as bring_in
    from tiered_stream.replay.programs import Command

    command = Command(
        settings=settings, option=option, reads={}, properties_file=properties_file, spark_conf=spark_conf, json=json
    )
    with exit_codes():
        given = command.given()
        table = GivenOptions(given).read(_TABLE)
        if table is None:
            raise ConfigurationError("ingest.table must be set, in the settings file or with --option")
        chosen = DeadLetterFilter([each.strip() for each in topics.split(",")] if topics else None, from_ms, to_ms)
        with command.session("tiered-stream redrive") as spark:
            report = bring_in(spark, given, table, chosen, dry_run=dry_run)
        show(report.to_json() if json else _rendered(report))
        raise typer.Exit(_LEFT if report.left or report.pending else 0)


def _rendered(report: RedriveReport) -> Table:
    from rich.table import Table

    rendered = Table("topic or table", "letters", "what became of them", title="Dry run" if report.dry_run else None)
    done = "would be rows" if report.dry_run else "are rows now"
    for table, count in report.appended.items():
        rendered.add_row(table, f"{count:,}", done)
    for (topic, reason), count in report.left.items():
        rendered.add_row(topic, f"{count:,}", f"left: {reason}")
    for topic, count in report.pending.items():
        rendered.add_row(topic, f"{count:,}", "pending: their batch is not finished")
    return rendered
