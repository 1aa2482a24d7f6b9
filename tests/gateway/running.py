"""The gateway as a real process before a stack's broker."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rigs.stack.processes import Service, free_ports

INSTALLED = (sys.executable, "-c", "from tiered_stream.cli import app; app()", "gateway")


class RunningGateway(Service):
    """A gateway.

    Args:
        settings: what the settings file has beside ports and host: `kafka.*`, `remote.storage.*`, `gateway.*`.
        program: the command before `--config`; by default the command-line tool of this environment.
    """

    grace = 20.0

    def __init__(self, folder: Path, settings: Mapping[str, str], program: Sequence[str] = INSTALLED) -> None:
        self.folder = folder
        self._program = program
        bootstrap, self.monitor_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{bootstrap}"
        (self.broker_port,) = free_ports(1)
        self.storage_endpoint = settings.get("remote.storage.s3.endpoint.url", "")
        """Where signed locations lead."""
        self._settings = {
            "gateway.listener.host": "127.0.0.1",
            "gateway.advertised.host": "127.0.0.1",
            "gateway.bootstrap.port": str(bootstrap),
            # One broker, whose id is 1: it has the second port of the range.
            "gateway.broker.ports": f"{self.broker_port - 1}-{self.broker_port}",
            "gateway.monitor.port": str(self.monitor_port),
            **settings,
        }

    def start(self) -> None:
        """Start it and wait until it is healthy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "gateway.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        command = [*self._program, "--config", str(file)]
        self._serve("gateway", command, self.log_file, lambda: self.health()[0] == 200)

    @property
    def log_file(self) -> Path:
        return self.folder / "gateway.log"

    def health(self) -> tuple[int, str]:
        """Status and text; (0, "") when nobody answers."""
        return self.page("health")

    def metric(self, name: str) -> float:
        """The value of a sample, its labels included in the name."""
        samples = dict(line.rsplit(" ", 1) for line in self.page("metrics")[1].splitlines() if not line.startswith("#"))
        return float(samples[f"tiered_stream_gateway_{name}"])

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of `/health` or `/metrics`; (0, "") when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor_port}/{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""
