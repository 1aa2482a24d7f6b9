"""What a replay does to live traffic: by ours, and by Spark's own `kafka` source, tuned, in turn.

python -m tests.bench.live_traffic [--records 10000000]

A producer and a consumer go on at a steady rate while old records are brought into a new Delta table. Broker and
traffic have one processor, Spark and the object store the other, as they have machines of their own elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import tiered_stream
from tests.bench.landing import check_landed, kafka_into
from tests.bench.noop import PARTITIONS, SEGMENT_BYTES, WARM_UP_TOPIC, fill
from tests.stack.broker import JVM_OPTIONS
from tests.stack.build import build_folder
from tests.stack.errors import StackError
from tests.stack.processes import free_ports
from tests.stack.spark import ROOT, spark_session
from tests.stack.tiered_stack import TieredStack
from tests.stack.tools import run_tool
from tests.stack.topics import create_tiered_topic

TOPIC, LIVE_TOPIC = "old", "live"
REPORT = ROOT / "build" / "live-traffic.json"
_IDLE_SECONDS = 20
_TURNS = 2
_METRICS = "kafka.server:type=BrokerTopicMetrics,name="
_TICKS = os.sysconf("SC_CLK_TCK")

console = Console(highlight=False, width=120)


@dataclass(frozen=True)
class Counters:
    """The broker's, since its start."""

    cpu_seconds: float
    bytes_out: int
    tiered_bytes: int

    def since(self, earlier: Counters) -> Counters:
        return Counters(
            *(now - then for now, then in zip(asdict(self).values(), asdict(earlier).values(), strict=True))
        )


@dataclass(frozen=True)
class Stretch:
    """What was measured while one of them ran: milliseconds at the 99th percentile, and the broker's counters.

    `bytes_out` are those of the replayed topic, `tiered_bytes` those that the broker read from remote storage.
    """

    what: str
    seconds: float
    produce_ms: float
    consume_ms: float
    cpu_seconds: float
    bytes_out: int
    tiered_bytes: int


class Broker:
    """Its counters, by JMX and by the kernel."""

    def __init__(self, stack: TieredStack, port: int) -> None:
        self._pid = stack.broker.process.pid
        self._url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"

    def counters(self) -> Counters:
        """Raises StackError: the broker does not answer."""
        ticks = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        names = (f"{_METRICS}BytesOutPerSec,topic={TOPIC}", f"{_METRICS}RemoteFetchBytesPerSec")
        return Counters(sum(map(int, ticks)) / _TICKS, *map(self._count, names))

    def _count(self, name: str) -> int:
        arguments = ["--jmx-url", self._url, "--object-name", name, "--attributes", "Count", "--one-time"]
        try:
            said = run_tool("org.apache.kafka.tools.JmxTool", [*arguments, "--report-format", "tsv"])
        except StackError as error:
            if "No matched attributes" not in str(error):
                raise
            return 0  # a topic has none before the first Fetch
        found = re.search(r"Count\s+(\d+)", said)
        return int(found[1]) if found else 0


def pin(pid: int, processor: int) -> None:
    """Give a process, all of its threads, one processor."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), {processor})


def measured(stack: TieredStack, broker: Broker, what: str, run: Callable[[], object]) -> Stretch:
    """Run it beside the traffic."""
    command = [sys.executable, "-m", "tests.bench.traffic", stack.bootstrap_servers, LIVE_TOPIC]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {0}),
    ) as traffic:  # fmt: skip
        assert traffic.stdin and traffic.stdout
        before = broker.counters()
        assert traffic.stdout.readline() == "ready\n"
        begin = time.perf_counter()
        run()
        seconds = time.perf_counter() - begin
        said, _ = traffic.communicate()
    found = broker.counters().since(before)
    latencies = json.loads(said)
    p99 = [statistics.quantiles(latencies[side], n=100)[98] for side in ("produced", "consumed")]
    return Stretch(what, seconds, *p99, **asdict(found))


def replayed(stack: TieredStack, spark: SparkSession, folder: Path, topic: str, records: int | None) -> None:
    """By ours."""
    table = folder / str(uuid4())
    tiered_stream.replay(spark, options={**stack.options(), "subscribe": topic}, from_time="0", into=str(table))
    check_landed(str(table), records)
    shutil.rmtree(table)


def read_through_broker(stack: TieredStack, spark: SparkSession, folder: Path, topic: str, records: int | None) -> None:
    """By Spark's own source."""
    table, checkpoint = folder / str(uuid4()), folder / str(uuid4())
    kafka_into(stack, spark)(topic, str(table), checkpoint).awaitTermination()
    check_landed(str(table), records)
    shutil.rmtree(table)


def report(stretches: list[Stretch]) -> Table:
    table = Table(title=f"live traffic on one processor with the broker, while {TOPIC} records are replayed")
    columns = ("seconds", "producer p99", "consumer p99", "broker CPU s", "bytes out", "tiered bytes")
    for column in ("", *columns):
        table.add_column(column, justify="right" if column else "left")
    for each in stretches:
        latencies = f"{each.produce_ms:,.1f} ms", f"{each.consume_ms:,.1f} ms"
        figures = f"{each.cpu_seconds:.1f}", f"{each.bytes_out:,}", f"{each.tiered_bytes:,}"
        table.add_row(each.what, f"{each.seconds:.1f}", *latencies, *figures)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live_traffic", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    records = parser.parse_args().records
    (port,) = free_ports(1)
    jmx = "-Dcom.sun.management.jmxremote"
    options = (jmx, f"{jmx}.port={port}", f"{jmx}.rmi.port={port}", f"{jmx}.authenticate=false", f"{jmx}.ssl=false")
    jvm_options = (*JVM_OPTIONS, *options, f"{jmx}.host=127.0.0.1", "-Djava.rmi.server.hostname=127.0.0.1")
    with build_folder("live-traffic") as folder, TieredStack(folder / "stack", jvm_options=jvm_options) as stack:
        broker = Broker(stack, port)
        create_tiered_topic(stack.broker, LIVE_TOPIC, 1, {"segment.bytes": str(SEGMENT_BYTES)})
        fill(stack, WARM_UP_TOPIC, 100_000, 100)
        fill(stack, TOPIC, records, 100)
        for pid, processor in ((stack.broker.process.pid, 0), (stack.s3proxy.process.pid, 1), (os.getpid(), 1)):
            pin(pid, processor)
        spark = spark_session("live-traffic", ("delta", "spark-kafka"))
        ways = {"tiered_stream": replayed, "kafka, 16 MiB fetches": read_through_broker}
        for way in ways.values():
            way(stack, spark, folder, WARM_UP_TOPIC, None)
        stretches = [measured(stack, broker, "traffic alone", partial(time.sleep, _IDLE_SECONDS))]
        for _ in range(_TURNS):
            for name, way in ways.items():
                run = partial(way, stack, spark, folder, TOPIC, records + PARTITIONS)
                stretches.append(measured(stack, broker, name, run))
        spark.stop()
    console.print(report(stretches))
    REPORT.write_text(json.dumps([asdict(each) for each in stretches], indent=2))
    console.print(f"written to {REPORT}")
    assert all(each.tiered_bytes == 0 for each in stretches if each.what == "tiered_stream")


if __name__ == "__main__":
    main()
