"""What attacks cost an honest client and the gateway: `python -m tests.gateway.attacks [--seconds N] [login] [open]`.

`login`: before brokers that ask for one, with TLS. `open`: before brokers that ask for none, without TLS.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.gateway.attackers import ATTACKS
from tests.gateway.honest import HonestClient, quantile
from tests.gateway.running import RunningGateway
from tests.gateway.secured import END, MAY_READ, SEGMENTS, secured
from tests.rigs.stack.processes import ServiceProcess, wait_until


@contextmanager
def attackers(gateway: RunningGateway, kind: str, folder: Path, *, tls: bool = False) -> Iterator[ServiceProcess]:
    """The attack on the gateway's bootstrap port, from when it stands."""
    port = gateway.bootstrap_servers.rpartition(":")[2]
    log = folder / f"{kind.replace(' ', '-')}.log"
    log.write_bytes(b"")
    command = [sys.executable, "-m", "tests.gateway.attackers", kind, port, *(["tls"] if tls else [])]
    process = ServiceProcess("attackers", command, log)
    process.start(lambda: b"standing" in log.read_bytes())
    try:
        yield process
    finally:
        process.kill()


class Memory:
    """The gateway's, in MiB."""

    def __init__(self, gateway: RunningGateway) -> None:
        self._folder = Path(f"/proc/{gateway.process.pid}")

    def forget_peak(self) -> None:
        (self._folder / "clear_refs").write_text("5")

    def peak(self) -> int:
        return self._read("VmHWM")

    def now(self) -> int:
        return self._read("VmRSS")

    def _read(self, name: str) -> int:
        status = dict(line.split(":", 1) for line in (self._folder / "status").read_text().splitlines())
        return int(status[name].split()[0]) >> 10


def attack(
    gateway: RunningGateway, client: HonestClient, kind: str, folder: Path, seconds: float, *, tls: bool
) -> tuple[str, ...]:
    """A line of the table."""
    memory = Memory(gateway)
    memory.forget_peak()
    before = memory.now()
    with attackers(gateway, kind, folder, tls=tls):
        waits = client.ask_for(seconds)
    peak = memory.peak()
    client.ask(1)
    wait_until(lambda: gateway.metric("connections") <= 1, "the attackers to be gone")
    waited = [(waits.requests, share) for share in (0.5, 0.99, 1)] + [
        (waits.first_requests, share) for share in (0.5, 1)
    ]
    figures = (f"{1000 * quantile(waits, share):.0f}" for waits, share in waited)
    row = (kind, f"{len(waits.requests)}", *figures, *map(str, (before, peak, memory.now())))
    Console(stderr=True, highlight=False, width=130).print(*row)
    return row


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(prog="python -m tests.gateway.attacks")
    arguments.add_argument("--seconds", type=float, default=10, help="of each attack")
    arguments.add_argument("listeners", nargs="*", default=["login", "open"])
    chosen = arguments.parse_args()
    table = Table(title="an honest client beside attackers (ms), and the gateway's memory (MiB)")
    for column in ("attack", "requests", "p50", "p99", "longest", "connect p50", "longest", "before", "peak", "after"):
        table.add_column(column, justify="left" if column == "attack" else "right")
    with tempfile.TemporaryDirectory(prefix="attacks-") as name, secured(Path(name)) as secure:
        folder = Path(name)
        if "login" in chosen.listeners:
            table.add_row("[b]brokers ask for a login; TLS[/]")
            honest = HonestClient(secure.login("alice"), MAY_READ, END, SEGMENTS)
            for kind in ATTACKS:
                table.add_row(*attack(secure.gateway, honest, kind, folder, chosen.seconds, tls=True))
        if "open" in chosen.listeners:
            table.add_row("[b]brokers ask for none; no TLS[/]")
            with RunningGateway(folder / "open", secure.stack.options()) as gateway:
                honest = HonestClient({"bootstrap.servers": gateway.bootstrap_servers}, MAY_READ, END, SEGMENTS)
                for kind in ATTACKS:
                    table.add_row(*attack(gateway, honest, kind, folder, chosen.seconds, tls=False))
    Console(highlight=False, width=130).print(table)


if __name__ == "__main__":
    main()
