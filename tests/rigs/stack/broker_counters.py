"""A broker's own counters: by JMX what it sent and read from remote storage, by the kernel its processor time."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.tools import run_tool

_TICKS = os.sysconf("SC_CLK_TCK")


def jmx_options(port: int) -> tuple[str, ...]:
    """Return JVM options of a broker that serves its counters at this port, on loopback only."""
    jmx = "-Dcom.sun.management.jmxremote"
    open_to_all = (f"{jmx}.authenticate=false", f"{jmx}.ssl=false")
    return (
        jmx, f"{jmx}.port={port}", f"{jmx}.rmi.port={port}", *open_to_all,
        f"{jmx}.host=127.0.0.1", "-Djava.rmi.server.hostname=127.0.0.1",
    )  # fmt: skip


@dataclass(frozen=True)
class Counters:
    """Since the broker's start: what it sent of one topic, and what it read from remote storage, of any."""

    cpu_seconds: float
    bytes_out: int
    tiered_bytes: int

    def since(self, earlier: Counters) -> Counters:
        return Counters(
            *(now - then for now, then in zip(asdict(self).values(), asdict(earlier).values(), strict=True))
        )


def read_counters(broker: KafkaBroker, port: int, topic: str) -> Counters:
    """Ask a broker that was started with `jmx_options(port)`.

    Raises:
        StackError: it does not respond.
    """
    ticks = Path(f"/proc/{broker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    metrics = {"BytesOutPerSec": f",topic={topic}", "RemoteFetchBytesPerSec": ""}
    arguments = ["--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi", "--one-time"]
    arguments += ["--attributes", "Count", "--report-format", "tsv"]
    for name, tags in metrics.items():
        arguments += ["--object-name", f"kafka.server:type=BrokerTopicMetrics,name={name}{tags}"]
    said = run_tool("org.apache.kafka.tools.JmxTool", arguments)
    return Counters(sum(map(int, ticks)) / _TICKS, *(_count(said, name) for name in metrics))


def _count(said: str, name: str) -> int:
    found = re.search(rf"\bname={name}\b.*:Count\s+(\d+)", said)
    return int(found[1]) if found else 0  # of a topic there is none before the first Fetch
