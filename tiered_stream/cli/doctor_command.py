"""`tiered-stream doctor`: find what prevents a job from running, and say how to fix it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.observe.standard_output import open_console

if TYPE_CHECKING:
    from rich.console import Console

    from tiered_stream.doctor.finding import Finding

DOCTOR_EXIT_CODES = (
    "Exit codes: 0 all is well, warnings or not; 1 something failed; 2 the settings are refused; 130 stopped by Ctrl-C."
)
_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("-", "dim")}
_PLAIN_SIGNS = {"✓": "+", "✗": "x"}
"""ASCII replacement for each sign that the encoding of the output may lack."""


@cli.command
def doctor(
    *,
    settings: cli.SettingsArguments,
    spark: cli.SparkArguments,
    write: Annotated[
        bool, typer.Option("--write", help="Also put an empty object into the table's store, and delete it.")
    ] = False,
    json: cli.Json = False,
) -> None:
    """Check everything that a job needs, and say how to fix faults: brokers, ACLs, storage, clock, table, checkpoint.

    The settings are the settings of the ingest job. Nothing is written without --write, no Spark is started, and no
    consumer group is joined. If a check fails, checks that do not depend on it still run.
    """
    # Imported late, because other commands do not need the broker client.
    from tiered_stream.doctor.examine import examine, exit_code
    from tiered_stream.doctor.spark_conf import read_spark_conf

    console = open_console()
    job, conf = settings.all_settings(), read_spark_conf(spark.properties_file, spark.spark_conf)
    findings = examine(job, conf, lambda finding: None if json else _print(console, finding), write=write)
    code = exit_code(findings)
    if json:
        cli.show(orjson.dumps({"exit_code": code, "findings": findings}).decode())
    else:
        counts = Counter(finding.status.value for finding in findings)
        console.print(", ".join(f"{counts[status]} {status}" for status in _SIGNS if counts[status]))
    raise typer.Exit(code)


def _print(console: Console, finding: Finding) -> None:
    from rich.text import Text

    sign, style = _SIGNS[finding.status]
    try:
        sign.encode(console.encoding)
    except UnicodeEncodeError:
        sign = _PLAIN_SIGNS[sign]
    console.print(Text.assemble((f"{sign} ", style), (finding.check, "bold"), f": {finding.found}"))
    if finding.fix:
        console.print(Text.assemble(("  fix: ", style), finding.fix))
