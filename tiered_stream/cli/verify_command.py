"""`tiered-stream verify`: whether a Delta table has what its topics have, each record once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.properties_files import parse_assignment

VERIFY_EXIT_CODES = """\
Exit codes: 0 the table is equal to its topics; 1 failed while it ran; 2 refused; 3 the table differs; 130 stopped.
"""


def verify(
    settings: Annotated[Path | None, typer.Option(help="A settings file; that of the ingest job will do.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="name=value, any setting; may be repeated.")] = None,
    subscribe: Annotated[str | None, typer.Option(help="Topics, separated by commas.")] = None,
    subscribe_pattern: Annotated[str | None, typer.Option(help="A pattern of topics' names.")] = None,
    assign: Annotated[str | None, typer.Option(help='Partitions: {"topicA":[0,1]}.')] = None,
    table: Annotated[str | None, typer.Option(help="The Delta table: a path, or a name in the catalog.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    spark_conf: Annotated[list[str] | None, typer.Option(help="name=value for Spark; may be repeated.")] = None,
) -> None:
    """Compare a Delta table with the topics that it was ingested from, whoever did that.

    What lies between starting and ending options must be in the table; without them each partition is compared from
    the table's first to its last offset. The first offset that is missing, extra, doubled or different is named.
    """
    # Imported late: other commands need no Spark.
    from tiered_stream.replay.exit_codes import REFUSED
    from tiered_stream.replay.verify_program import VerifyCommand, run_verify

    console = Console(highlight=False, soft_wrap=True, stderr=json)
    reads = {"subscribe": subscribe, "subscribePattern": subscribe_pattern, "assign": assign}
    given = {each: value for each, value in reads.items() if value is not None}
    try:
        options = dict(map(parse_assignment, option or [])) | given
        spark = dict(map(parse_assignment, spark_conf or []))
    except ConfigurationError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(REFUSED) from None
    raise typer.Exit(run_verify(VerifyCommand(settings, options, table, json, spark), console))
