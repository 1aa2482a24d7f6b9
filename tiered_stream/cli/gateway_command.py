"""`tiered-stream gateway`: run the broker side of KIP-1248 in front of stock brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import tiered_stream.cli.command_line as cli

GATEWAY_EXIT_CODES = "Exit codes: 0 stopped by SIGTERM or Ctrl-C; 1 failed; 2 the settings are refused."


def gateway(
    config: Annotated[list[Path], typer.Option(help="A settings file, see conf/gateway.properties; may be repeated.")],
    verbose: Annotated[bool, typer.Option(help="Say more.")] = False,
) -> None:
    """Run a proxy in front of Kafka brokers that reports to clients where tiered segments are (KIP-1248).

    The proxy runs until SIGTERM or Ctrl-C.
    """
    # Imported late, because other commands need neither an asyncio server nor boto3.
    from tiered_stream.gateway.gateway_program import run_gateway

    with cli.exit_codes():
        run_gateway(config, verbose=verbose)
