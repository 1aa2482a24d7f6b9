"""What clients that ask for as much as they can cost an honest one, the gateway and the storage.

    python -m tests.gateway.greedy [--seconds N]

Cluster and storage are made up, see `made_up_cluster` and `made_up_storage`; the gateway is a process of its own with
the settings that it has by default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.gateway.attacks import Memory, attackers
from tests.gateway.honest import HonestClient, Waits, quantile
from tests.gateway.made_up_cluster import OFFSETS, TOPIC
from tests.gateway.planning import made_up_gateway
from tests.gateway.running import RunningGateway
from tests.rigs.stack.processes import ServiceProcess, free_ports, listens
from tiered_stream.model import TopicPartition

GREEDY = ("parts of one byte", "location requests of 859 KiB", "topics that may not be read")
SEGMENT_BYTES = 10_000_000
SEGMENTS, HONEST_SEGMENTS = 2_000, 20


@dataclass(frozen=True)
class Site:
    """A gateway before a made-up cluster and storage."""

    gateway: RunningGateway
    storage_port: int
    folder: Path

    def most_requests_a_second(self) -> int:
        """Of the storage, since it began."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.storage_port}/most") as answer:
            return int(answer.read())

    def honest(self) -> HonestClient:
        """A client that asks for few segments of a partition."""
        properties = {"bootstrap.servers": self.gateway.bootstrap_servers, "default.api.timeout.ms": "600000"}
        return HonestClient(properties, TopicPartition(TOPIC, 1), HONEST_SEGMENTS * OFFSETS, HONEST_SEGMENTS)


@contextmanager
def site() -> Iterator[Site]:
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="greedy-") as name:
        command = [sys.executable, "-m", "tests.gateway.made_up_storage", str(port), str(SEGMENT_BYTES)]
        storage = ServiceProcess("made-up storage", command, Path(name) / "storage.log")
        storage.start(lambda: listens(port))
        given = {
            "remote.storage.uri": "s3://tier",
            "remote.storage.s3.endpoint.url": f"http://127.0.0.1:{port}",
            "remote.storage.s3.path.style.access.enabled": "true",
            "remote.storage.s3.region": "us-east-1",
            "remote.storage.aws.access.key.id": "id",
            "remote.storage.aws.secret.access.key": "key",
            "gateway.signed.location.lifetime.seconds": "900",
        }
        try:
            with made_up_gateway(2, SEGMENTS, given, segment_bytes=SEGMENT_BYTES) as gateway:
                yield Site(gateway, port, Path(name))
        finally:
            storage.stop()


def beside(here: Site, kind: str, seconds: float) -> tuple[Waits, int]:
    """How long an honest client waits beside this attack, and the gateway's memory in MiB."""
    memory = Memory(here.gateway)
    memory.forget_peak()
    with attackers(here.gateway, kind, here.folder):
        waits = here.honest().ask_for(seconds)
    return waits, memory.peak()


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(prog="python -m tests.gateway.greedy")
    arguments.add_argument("--seconds", type=float, default=20, help="of each attack")
    seconds = arguments.parse_args().seconds
    table = Table(title="an honest client beside greedy ones (ms), memory (MiB), storage requests a second at most")
    for column in ("greedy clients", "requests", "p50", "p99", "longest", "first p50", "longest", "memory", "storage"):
        table.add_column(column)
    with site() as here:
        for kind in ("nobody", *GREEDY):
            waits, peak = beside(here, kind, seconds)
            shares = [(waits.requests, share) for share in (0.5, 0.99, 1)]
            shares += [(waits.first_requests, share) for share in (0.5, 1)]
            figures = [f"{1000 * quantile(of, share):.0f}" for of, share in shares]
            row = (kind, str(len(waits.requests)), *figures, str(peak), str(here.most_requests_a_second()))
            Console(stderr=True, highlight=False, width=130).print(*row)
            table.add_row(*row)
    Console(highlight=False, width=130).print(table)


if __name__ == "__main__":
    main()
