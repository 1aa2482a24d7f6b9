"""The gateway as a real process before a stack's broker."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.rigs.stack.processes import ServiceProcess, free_ports

PORTS = 20
INSTALLED = (sys.executable, "-c", "from tiered_stream.cli import app; app()", "gateway")


class RunningGateway:
    """A context manager; it keeps its ports over `stop` and `start`.

    Args:
        settings: what the settings file has beside ports and host: `kafka.*`, `remote.storage.*`, `gateway.*`.
        program: the command before `--config`; by default the command-line tool of this environment.
    """

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
        self.process: ServiceProcess | None = None

    def start(self) -> None:
        """Start it and wait until it is healthy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "gateway.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        self.process = ServiceProcess("gateway", [*self._program, "--config", str(file)], self.log_file)
        self.process.start(lambda: self.health()[0] == 200)

    @property
    def pid(self) -> int:
        """Of the last run."""
        assert self.process is not None
        return self.process.pid

    @property
    def log_file(self) -> Path:
        return self.folder / "gateway.log"

    def stop(self) -> None:
        """Ask it to end, as an operator does."""
        if self.process is not None:
            self.process.stop(grace=20)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()

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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
