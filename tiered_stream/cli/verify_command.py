"""`tiered-stream verify`: check that a Delta table, or the storage, holds each record of the topics exactly once."""

from __future__ import annotations

from typing import Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.errors import BrokerAuthorizationError, ConfigurationError, UnknownTopicError

VERIFY_EXIT_CODES = """\
Exit codes: 0 equal; 1 failed while it ran; 2 refused; 3 the table, or the storage, differs; 130 stopped.
"""


@cli.with_grouped_arguments
def verify(
    *,
    settings: cli.SettingsArguments,
    table: Annotated[str | None, typer.Option(help="The Delta table: a path, or a name in the catalog.")] = None,
    storage: Annotated[
        bool, typer.Option("--storage", help="Compare what is tiered with what brokers give of it, and no table.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Compute wrong statistics in the table's log again. Stop its writers first."),
    ] = False,
    json: cli.Json = False,
    spark: cli.SparkArguments,
) -> None:
    """Compare a Delta table with the topics from which any tool has ingested it.

    All records between the starting and ending options must be in the table. Without these options, each partition is
    compared from the table's first to its last offset. The first offset that is missing, extra, duplicate or different
    is named.

    The statistics in the table's log, by which readers skip files, are compared with the rows of the newest files.

    With --storage, tiered offsets are read from the storage and from the brokers and compared, without Spark.
    """
    if storage:
        with cli.exit_codes(UnknownTopicError, BrokerAuthorizationError):
            if table is not None:
                raise ConfigurationError("--storage compares no table: remove --table or --storage")
            if repair:
                raise ConfigurationError("--repair needs a table, and --storage compares none: remove one of them")
            raise typer.Exit(_storage(settings.source_options(), json=json))
    with cli.exit_codes():
        # Imported late, because other commands do not need Spark.
        from tiered_stream.cli.spark_commands import run_verify

    raise typer.Exit(run_verify(settings, table, spark, json=json, repair=repair))


def _storage(options: dict[str, str], *, json: bool) -> int:
    from tiered_stream.options.parsing import parse_options
    from tiered_stream.verification.storage_comparison import compare_storage, render_storage

    report = compare_storage(parse_options(options, streaming=False))
    cli.show(report.to_json() if json else render_storage(report))
    return 0 if report.equal else cli.DIFFERS
