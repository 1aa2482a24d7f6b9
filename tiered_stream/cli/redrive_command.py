"""`tiered-stream redrive`: decode dead letters again, and land the records that now decode in their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.delta.settings.ingest_settings import TABLE, job_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.settings_files import command_settings

if TYPE_CHECKING:
    from rich.table import Table

    from tiered_stream.delta.redrive.redrive_run import RedriveReport

REDRIVE_EXIT_CODES = "Exit codes: 0 done; 1 failed while it ran; 2 refused; 3 dead letters are left; 130 stopped."


@cli.command
def redrive(
    *,
    settings: cli.SettingsFile = None,
    option: cli.Assignments = None,
    topics: Annotated[str | None, typer.Option(help="Only dead letters of these topics, separated by commas.")] = None,
    from_ms: Annotated[int | None, typer.Option(help="Records at or after this time, in ms since 1970.")] = None,
    to_ms: Annotated[int | None, typer.Option(help="Records before this time, in ms since 1970.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would become of them, and change nothing.")
    ] = False,
    json: cli.Json = False,
    spark: cli.SparkArguments,
) -> None:
    """Decode the job's dead letters again with the current settings, and land each record that decodes, exactly once.

    The settings name the tables: ingest.deadLetterTable and ingest.table. Dead letters that still do not decode stay in
    the first table, and are reported by topic and reason. Dead letters of a micro-batch that is not finished stay, too,
    and are reported as pending.
    """
    # Imported late, because other commands do not need Spark.
    from tiered_stream.cli.spark_commands import spark_session
    from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter, dead_letter_table
    from tiered_stream.delta.redrive.redrive_run import redrive as redrive_job

    job = command_settings(settings, option, {})
    table = job_settings(job).get(TABLE)
    if not table:
        raise ConfigurationError("ingest.table must be set, in the settings file or with --option")
    dead_letter_table(job)  # checked before Spark starts
    chosen = DeadLetterFilter([topic.strip() for topic in topics.split(",")] if topics else None, from_ms, to_ms)
    with spark_session("tiered-stream redrive", spark) as session:
        report = redrive_job(session, job, table, chosen, dry_run=dry_run)
    cli.show(report.to_json() if json else _rendered(report))
    raise typer.Exit(cli.DIFFERS if report.left or report.pending else 0)


def _rendered(report: RedriveReport) -> Table:
    from rich.table import Table

    rendered = Table("topic or table", "dead letters", "result", title="Dry run" if report.dry_run else None)
    done = "would be rows" if report.dry_run else "are rows now"
    for table, count in report.appended.items():
        rendered.add_row(table, f"{count:,}", done)
    for (topic, reason), count in report.left.items():
        rendered.add_row(topic, f"{count:,}", f"left: {reason}")
    for topic, count in report.pending.items():
        rendered.add_row(topic, f"{count:,}", "pending: their batch is not finished")
    return rendered
