"""The command `tiered-stream`, run in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from tests.rigs.stack.processes import free_ports
from tiered_stream.cli import app


def run(command: str, options: Mapping[str, str], *arguments: str) -> Result:
    """Run one of its commands with these options."""
    given = (text for name, value in options.items() for text in ("--option", f"{name}={value}"))
    return CliRunner().invoke(app, [command, *given, *arguments])


def job_settings(folder: Path, options: Mapping[str, str]) -> str:
    """A settings file as that of an ingest job."""
    file = folder / "job.properties"
    given = {**options, "ingest.table": "t"}
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return str(file)


def nobody() -> dict[str, str]:
    """Options with brokers that nobody runs, which are given up soon."""
    (port,) = free_ports(1)
    return {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.default.api.timeout.ms": "100", "subscribe": "t"}
