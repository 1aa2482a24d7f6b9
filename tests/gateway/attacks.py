"""Attackers as a process of their own, and the memory of the gateway that they attack."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.gateway.running import RunningGateway
from tests.rigs.stack.processes import ServiceProcess


@contextmanager
def attackers(gateway: RunningGateway, kind: str, folder: Path) -> Iterator[ServiceProcess]:
    """The attack on the gateway's bootstrap port, from when it stands."""
    port = gateway.bootstrap_servers.rpartition(":")[2]
    log = folder / f"{kind.replace(' ', '-')}.log"
    log.write_bytes(b"")
    process = ServiceProcess("attackers", [sys.executable, "-m", "tests.gateway.attackers", kind, port], log)
    process.start(lambda: b"standing" in log.read_bytes())
    try:
        yield process
    finally:
        process.kill()


class Memory:
    """The gateway's greatest use of memory."""

    def __init__(self, gateway: RunningGateway) -> None:
        self._folder = Path(f"/proc/{gateway.process.pid}")

    def forget_peak(self) -> None:
        (self._folder / "clear_refs").write_text("5")

    def peak(self) -> int:
        """In MiB."""
        status = dict(line.split(":", 1) for line in (self._folder / "status").read_text().splitlines())
        return int(status["VmHWM"].split()[0]) >> 10
