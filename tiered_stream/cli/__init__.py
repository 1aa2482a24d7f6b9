"""The command `tiered-stream`."""

from __future__ import annotations

import typer

from tiered_stream.cli.warm import warm

app = typer.Typer(no_args_is_help=True, help="Kafka topics straight from tiered storage, for Spark.")
app.command()(warm)


@app.callback()
def _commands() -> None:
    """Makes `warm` a command of its own while it is the only one."""
