"""`tiered-stream replay`: copy the records of topics between two times into a table, a topic, or a folder."""

from __future__ import annotations

import typer

import tiered_stream.cli.command_line as cli

EXIT_CODES = """\
Exit codes: 0 done, or finished before; 1 failed while it ran: the same command goes on; 2 refused, nothing was written;
3 done, and --verify has found that the table differs; 130 stopped by Ctrl-C or SIGTERM: the same command goes on.
"""


@cli.with_grouped_arguments
def replay(
    *,
    command: cli.ReplayCommand,
    settings: cli.SettingsArguments,
    prices: cli.PriceArguments,
    spark: cli.SparkArguments,
) -> None:
    """Copy the records of topics between two times into a table, a topic, or a folder, each record once.

    If the command is stopped, the same command continues the replay. A partition is read from its first offset with a
    timestamp at or after --from, up to its first offset with a timestamp at or after --to (Kafka: offsetsForTimes).
    """
    with cli.exit_codes():
        # Imported late, because other commands do not need Spark.
        from tiered_stream.cli.spark_commands import run_replay

    raise typer.Exit(run_replay(command, settings, prices, spark))
