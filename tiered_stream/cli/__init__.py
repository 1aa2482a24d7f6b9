"""The command `tiered-stream`."""

from __future__ import annotations

import typer

from tiered_stream.cli.gateway_command import gateway
from tiered_stream.cli.replay_command import EXIT_CODES, replay
from tiered_stream.cli.verify_command import VERIFY_EXIT_CODES, verify
from tiered_stream.cli.warm_command import warm

app = typer.Typer(no_args_is_help=True, help="Kafka topics straight from tiered storage, for Spark.")
app.command()(warm)
app.command()(gateway)
app.command(epilog=EXIT_CODES)(replay)
app.command(epilog=VERIFY_EXIT_CODES)(verify)
