"""Entry point of `python -m tiered_stream.gateway`, and of the gateway's single-file build (without typer and rich)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tiered_stream
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.gateway.gateway_program import run_gateway
from tiered_stream.options.settings_files import with_origins

_FAILED, _REFUSED = 1, 2


def main() -> int:
    """Run the gateway with the command line's arguments until SIGTERM or Ctrl-C, and return the exit code.

    The exit code is 0 after a signal, 1 if the gateway failed, and 2 if its settings are wrong.
    """
    parser = argparse.ArgumentParser(
        prog="tiered-stream-gateway",
        description="Run a proxy in front of Kafka brokers that reports where tiered segments are (KIP-1248).",
        epilog="Exit codes: 0 stopped by SIGTERM or Ctrl-C; 1 failed; 2 the settings are refused.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, action="append",
        help="a settings file, see conf/gateway.properties; may be repeated",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="say more")
    parser.add_argument("--version", action="version", version=f"tiered-stream {tiered_stream.__version__}")
    given = parser.parse_args()
    try:
        run_gateway(given.config, verbose=given.verbose)
    except TieredStreamError as error:
        sys.stderr.write(f"{with_origins(str(error))}\n")
        return _REFUSED if isinstance(error, ConfigurationError) else _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
