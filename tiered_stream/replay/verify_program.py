"""The command `verify`: settings and arguments in, an exit code out."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console

from tiered_stream.errors import ConfigurationError
from tiered_stream.replay.command import (
    DIFFERS,
    DONE,
    ERRORS,
    FAILED,
    REFUSED,
    STOPPED,
    WRONG_INPUT,
    Command,
    of_the_job,
    of_the_source,
    said,
)
from tiered_stream.replay.verification import verify
from tiered_stream.replay.verify_report import render


@dataclass(frozen=True, kw_only=True)
class VerifyCommand(Command):
    """The command line."""

    table: str | None


def run_verify(command: VerifyCommand) -> int:
    """Run it; the exit code."""
    console = Console(highlight=False, soft_wrap=True, stderr=command.json)
    try:
        settings = command.given()
        table = command.table or of_the_job(settings, "table")
        if table is None:
            raise ConfigurationError("say by --table what to verify: a path, or a name in the catalog")
        with command.session("verify") as spark:
            report = verify(spark, options=of_the_source(settings), table=table)
    except KeyboardInterrupt:
        console.print("stopped; nothing is known of the table yet")
        return STOPPED
    except ERRORS as error:
        return said(console, error, REFUSED if isinstance(error, WRONG_INPUT) else FAILED)
    if command.json:
        sys.stdout.write(f"{report.to_json()}\n")
    else:
        console.print(render(report))
    return DONE if report.equal else DIFFERS
