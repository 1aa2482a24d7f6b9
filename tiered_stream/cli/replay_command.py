"""`tiered-stream replay`: copy the records of topics between two times into a table, a topic, or a folder."""

from __future__ import annotations

from typing import Annotated

import typer

from tiered_stream.cli.arguments import (
    Assign,
    Assignments,
    GetPrice,
    GibPrice,
    PropertiesFile,
    SettingsFile,
    SparkConf,
    Subscribe,
    SubscribePattern,
    reads,
)
from tiered_stream.options.types import byte_size

EXIT_CODES = """\
Exit codes: 0 done, or finished before; 1 failed while it ran: the same command goes on; 2 refused, nothing was written;
3 done, and --verify has found that the table differs; 130 stopped by Ctrl-C or SIGTERM: the same command goes on.
"""
_TIME = "2026-11-01T00:00:00Z (with a zone), milliseconds since the epoch, or back from now: -90m, -3h, -2d"


def _rate(text: str) -> int:
    try:
        return byte_size(1)(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


def replay(
    from_time: Annotated[str, typer.Option("--from", help=f"The first time: {_TIME}.")],
    to_time: Annotated[str | None, typer.Option("--to", help="The time before which it ends; default: all.")] = None,
    settings: SettingsFile = None,
    option: Assignments = None,
    subscribe: Subscribe = None,
    subscribe_pattern: SubscribePattern = None,
    assign: Assign = None,
    into: Annotated[
        str | None,
        typer.Option(help="A Delta table (its path or name in the catalog), kafka:TOPIC or parquet:FOLDER."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The replay's name; default: made from the arguments.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Its checkpoint; default: in the table or folder, _checkpoints/replay-NAME.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Every record of that time, and no other.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the table's rows of the same offsets out, in the same commit.")
    ] = False,
    lane: Annotated[str | None, typer.Option(help="auto, direct or spark.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="The most tasks at once.")] = None,
    max_bytes_per_second: Annotated[
        int | None,
        typer.Option(parser=_rate, metavar="SIZE", help="The most that is fetched, and the most that is written: 50m."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="In the end, compare the table with the topics.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be read, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: for programs.")] = False,
    get_price: GetPrice = None,
    gib_price: GibPrice = None,
    properties_file: PropertiesFile = None,
    spark_conf: SparkConf = None,
) -> None:
    """Copy the records of topics between two times into a table, a topic, or a folder, each record once.

    If the command is stopped, the same command continues the replay. A partition is read from its first offset with a
    timestamp at or after --from, up to its first offset with a timestamp at or after --to (Kafka: offsetsForTimes).
    """
    # Imported late, because other commands do not need Spark.
    from tiered_stream.replay.programs import ReplayCommand, run_replay

    command = ReplayCommand(
        settings=settings, option=option, reads=reads(subscribe, subscribe_pattern, assign),
        properties_file=properties_file, spark_conf=spark_conf, json=json, from_time=from_time, to_time=to_time,
        into=into, name=name, checkpoint=checkpoint, exact=exact, replace=replace, lane=lane, tasks=tasks,
        max_bytes_per_second=max_bytes_per_second, verify=verify, dry_run=dry_run, get_price=get_price,
        gib_price=gib_price,
    )  # fmt: skip
    raise typer.Exit(run_replay(command))
