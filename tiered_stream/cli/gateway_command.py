"""`tiered-stream gateway`: run the broker side of KIP-1248 in front of stock brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiered_stream.cli.arguments import exit_codes
from tiered_stream.errors import TieredStreamError
from tiered_stream.options.settings_files import file_settings

GATEWAY_EXIT_CODES = "Exit codes: 0 stopped by SIGTERM or Ctrl-C; 1 failed; 2 the settings are refused."


def gateway(
    config: Annotated[list[Path], typer.Option(help="A settings file, see conf/gateway.properties; may be repeated.")],
    verbose: Annotated[bool, typer.Option(help="Say more.")] = False,
) -> None:
    """Run a proxy in front of Kafka brokers that reports to clients where tiered segments are (KIP-1248).

    The proxy runs until SIGTERM or Ctrl-C.
    """
    # Imported late, because other commands need neither an asyncio server nor boto3.
    from tiered_stream.gateway.gateway_program import log_to_standard_error, run_gateway
    from tiered_stream.gateway.gateway_settings import GatewaySettings

    log_to_standard_error(verbose=verbose)
    with exit_codes():
        try:
            run_gateway(GatewaySettings.parse(file_settings(*config)))
        except OSError as error:
            raise TieredStreamError(str(error)) from error
