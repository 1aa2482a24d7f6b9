"""Command line `tiered-stream`, with all its commands.

The jobs import `command_line`, `ingest_command` and `replay_command`.

- `command_line`: arguments, output and exit codes that commands share.
- `NAME_command`: the command `NAME`.
- `inspection_commands`: the commands `segments`, `plan` and `lag`.
- `record_format`: formats in which `cat` prints records.
- `spark_commands`: the part of `replay` and `verify` that needs Spark.
"""

from __future__ import annotations

from typing import Annotated

import typer

import tiered_stream
import tiered_stream.cli.command_line as cli
from tiered_stream.cli.cat_command import CAT_EXIT_CODES, cat
from tiered_stream.cli.doctor_command import DOCTOR_EXIT_CODES, doctor
from tiered_stream.cli.export_command import EXPORT_EXIT_CODES, export
from tiered_stream.cli.gateway_command import GATEWAY_EXIT_CODES, gateway
from tiered_stream.cli.ingest_command import INGEST_EXIT_CODES, ingest
from tiered_stream.cli.inspection_commands import INSPECTION_EXIT_CODES, lag, plan, segments
from tiered_stream.cli.redrive_command import REDRIVE_EXIT_CODES, redrive
from tiered_stream.cli.replay_command import EXIT_CODES, replay
from tiered_stream.cli.verify_command import VERIFY_EXIT_CODES, verify
from tiered_stream.cli.warm_command import warm
from tiered_stream.cli.watch_command import WATCH_EXIT_CODES, watch
from tiered_stream.observe.standard_output import replace_unknown_characters

app = cli.command_app(no_args_is_help=True, add_completion=True)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"tiered-stream {tiered_stream.__version__}")
        raise typer.Exit


@app.callback()
def prepare(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Read Kafka topics straight from tiered storage, for Spark and Delta tables."""
    replace_unknown_characters()


app.command()(warm)
app.command(epilog=GATEWAY_EXIT_CODES)(gateway)
app.command(epilog=CAT_EXIT_CODES)(cat)
app.command(epilog=EXPORT_EXIT_CODES)(export)
app.command(epilog=INSPECTION_EXIT_CODES)(segments)
app.command(epilog=INSPECTION_EXIT_CODES)(plan)
app.command(epilog=INSPECTION_EXIT_CODES)(lag)
app.command(epilog=DOCTOR_EXIT_CODES)(doctor)
app.command(epilog=INGEST_EXIT_CODES)(ingest)
app.command(epilog=EXIT_CODES)(replay)
app.command(epilog=REDRIVE_EXIT_CODES)(redrive)
app.command(epilog=VERIFY_EXIT_CODES)(verify)
app.command(epilog=WATCH_EXIT_CODES)(watch)
