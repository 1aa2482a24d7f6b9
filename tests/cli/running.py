"""The command `tiered-stream`, run in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from typer.testing import CliRunner, Result

from tests.rigs.stack.processes import free_ports
from tiered_stream.cli import app


def words(options: Mapping[str, str]) -> list[str]:
    """The options as words of the command line."""
    return [word for name, value in options.items() for word in ("--option", f"{name}={value}")]


def run(command: str, options: Mapping[str, str], *arguments: str) -> Result:
    """Run one of its commands with these options."""
    return CliRunner().invoke(app, [command, *words(options), *arguments])


def report(command: str, options: Mapping[str, str], *arguments: str, status: int = 0) -> dict[str, Any]:
    """What a command reports as JSON when it ends with this exit code."""
    ended = run(command, options, "--json", *arguments)
    assert ended.exit_code == status, ended.output
    found: dict[str, Any] = orjson.loads(ended.stdout)
    return found


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
