"""The command `verify`: settings and arguments in, an exit code out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console

from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.replay.exit_codes import DIFFERS, DONE, FAILED, REFUSED, STOPPED, WRONG_INPUT, said
from tiered_stream.replay.job_settings import given_settings, of_the_source, table_of_the_job
from tiered_stream.replay.session import command_session, end_session
from tiered_stream.replay.verification import verify
from tiered_stream.replay.verify_report import render


@dataclass(frozen=True)
class VerifyCommand:
    """What the command line says."""

    settings: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    json: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)


def run_verify(command: VerifyCommand, console: Console) -> int:
    """Run it; the exit code."""
    try:
        settings = given_settings(command.settings, command.options)
        table = command.table or table_of_the_job(settings)
        if table is None:
            raise ConfigurationError("say by --table what to verify: a path, or a name in the catalog")
        spark = command_session("verify", command.spark)
    except ConfigurationError as error:
        return said(console, error, REFUSED)
    try:
        report = verify(spark, options=of_the_source(settings), table=table)
    except KeyboardInterrupt:
        console.print("stopped; nothing is known of the table yet")
        return STOPPED
    except (TieredStreamError, PySparkException, Py4JError) as error:
        return said(console, error, REFUSED if isinstance(error, WRONG_INPUT) else FAILED)
    finally:
        end_session(spark)
    if command.json:
        sys.stdout.write(f"{report.to_json()}\n")
    else:
        console.print(render(report))
    return DONE if report.equal else DIFFERS
