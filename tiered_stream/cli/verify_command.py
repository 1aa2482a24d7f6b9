"""`tiered-stream verify`: whether a Delta table has what its topics have, each record once."""

from __future__ import annotations

from typing import Annotated

import typer

from tiered_stream.cli.arguments import Assign, Assignments, SettingsFile, SparkConf, Subscribe, SubscribePattern, reads

VERIFY_EXIT_CODES = """\
Exit codes: 0 the table is equal to its topics; 1 failed while it ran; 2 refused; 3 the table differs; 130 stopped.
"""


def verify(
    settings: SettingsFile = None,
    option: Assignments = None,
    subscribe: Subscribe = None,
    subscribe_pattern: SubscribePattern = None,
    assign: Assign = None,
    table: Annotated[str | None, typer.Option(help="The Delta table: a path, or a name in the catalog.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    spark_conf: SparkConf = None,
) -> None:
    """Compare a Delta table with the topics that it was ingested from, whoever did that.

    What lies between starting and ending options must be in the table; without them each partition is compared from
    the table's first to its last offset. The first offset that is missing, extra, doubled or different is named.
    """
    # Imported late: other commands need no Spark.
    from tiered_stream.replay.programs import VerifyCommand, run_verify

    given = reads(subscribe, subscribe_pattern, assign)
    command = VerifyCommand(
        settings=settings, option=option, reads=given, spark_conf=spark_conf, json=json, table=table
    )
    raise typer.Exit(run_verify(command))
