"""What a replay does to live traffic: by ours, and by Spark's own `kafka` source, tuned, in turn.

python -m tests.rigs.bench.live_traffic RECORDS RUNS writes `REPORT`.

A producer and a consumer go on at a steady rate while old records are brought into a new Delta table. Broker and
traffic have one processor, Spark and the object store the other, as they have machines of their own elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

import tiered_stream
from tests.rigs.bench import traffic
from tests.rigs.bench.batch_reads import OURS
from tests.rigs.bench.figures import Row, spread
from tests.rigs.bench.landing import KAFKA_TUNED, check_landed, spark_lands
from tests.rigs.bench.rig import TUNED, Rig
from tests.rigs.bench.shapes import Shape, fill
from tests.rigs.soak.held import MIB
from tests.rigs.stack.broker import MEASURED_JVM_OPTIONS
from tests.rigs.stack.broker_counters import Counters, jmx_options, read_counters
from tests.rigs.stack.build import build_folder
from tests.rigs.stack.children import Child
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.spark import ROOT, spark_session
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic

LIVE_TOPIC = "live"
ALONE = "traffic alone"
RECORDS = 10_000_000
REPORT = ROOT / "build" / "live-traffic.json"
_IDLE_SECONDS = 20


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


def pin(pid: int, processor: int) -> None:
    """Give a process, all of its threads, one processor."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), {processor})


def measured(stack: TieredStack, counters: Callable[[], Counters], what: str, run: Callable[[], object]) -> Stretch:
    """Run it beside the traffic."""
    with Child(stack.folder / "traffic.log", traffic.run, stack.bootstrap_servers, LIVE_TOPIC) as child:
        before = counters()
        assert child.receive() == "ready"
        begin = time.perf_counter()
        run()
        seconds = time.perf_counter() - begin
        latencies = child.ask("end")
    found = counters().since(before)
    p99 = [statistics.quantiles(side, n=100)[98] for side in latencies]
    return Stretch(what, seconds, *p99, **asdict(found))


def replayed(stack: TieredStack, spark: SparkSession, folder: Path, shape: Shape) -> None:
    """By ours."""
    table = folder / str(uuid4())
    tiered_stream.replay(spark, options={**stack.options(), "subscribe": shape.topic}, from_time="0", into=str(table))
    check_landed(str(table), shape.rows)
    shutil.rmtree(table)


def read_through_broker(stack: TieredStack, spark: SparkSession, folder: Path, shape: Shape) -> None:
    """By Spark's own source."""
    table, checkpoint = folder / str(uuid4()), folder / str(uuid4())
    servers = {"kafka.bootstrap.servers": stack.bootstrap_servers}
    options = {**servers, "subscribe": shape.topic, "startingOffsets": "earliest", **TUNED}
    spark_lands(spark, options)(str(table), checkpoint).awaitTermination()
    check_landed(str(table), shape.rows)
    shutil.rmtree(table)


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """Each of its figures beside the same by `kafka`, and the traffic's beside those without a replay.

    It runs in a process of its own, as it has processors of its own.
    """
    command = [sys.executable, "-m", "tests.rigs.bench.live_traffic"]
    subprocess.run([*command, str(round(RECORDS * rig.scale)), str(runs)], cwd=ROOT, check=True)
    stretches = [Stretch(**each) for each in json.loads(REPORT.read_text())]
    for against in (KAFKA_TUNED, ALONE):
        for title, figure in _FIGURES.items():
            if against == KAFKA_TUNED or figure in _OF_THE_TRAFFIC:
                yield _row(title, figure, against, stretches)


_OF_THE_TRAFFIC = ("produce_ms", "consume_ms")
_FIGURES = {
    "live traffic": "seconds",
    "live traffic, ms of the producer at the 99th percentile": "produce_ms",
    "live traffic, ms of the consumer at the 99th percentile": "consume_ms",
    "live traffic, core seconds of the broker": "cpu_seconds",
}
"""Title of the row, and the figure of a stretch that it has."""


def _row(title: str, figure: str, against: str, stretches: list[Stretch]) -> Row:
    values = {what: [getattr(each, figure) for each in stretches if each.what == what] for what in (OURS, against)}
    ours, theirs = values[OURS], values[against]
    pairs = zip(ours, theirs * (len(ours) // len(theirs)), strict=True)
    more = {
        f"tiered MiB by the broker, {what}": max(each.tiered_bytes for each in stretches if each.what == what) / MIB
        for what in values
    }
    ratios = spread([other / own for own, other in pairs])
    return Row(title, OURS, against, spread(ours), spread(theirs), ratios, None, None, more)


def main() -> None:
    records, runs = map(int, sys.argv[1:])
    (port,) = free_ports(1)
    jvm_options = (*MEASURED_JVM_OPTIONS, *jmx_options(port))
    with (
        build_folder("live-traffic") as folder,
        TieredStack(folder / "stack", jvm_options=jvm_options, s3_jvm_options=()) as stack,
    ):
        warm_up, old = Shape("warm-up", 100_000), Shape("old", records)
        counters = partial(read_counters, stack.broker, port, old.topic)
        create_tiered_topic(stack.broker, LIVE_TOPIC, 1, {"segment.bytes": str(old.segment_bytes)})
        for shape in (warm_up, old):
            fill(stack.broker, shape, folder)
        for pid, processor in ((stack.broker.process.pid, 0), (stack.s3proxy.process.pid, 1), (os.getpid(), 1)):
            pin(pid, processor)
        spark = spark_session("live-traffic", ("delta", "spark-kafka"))
        ways = {OURS: replayed, KAFKA_TUNED: read_through_broker}
        for way in ways.values():
            way(stack, spark, folder, warm_up)
        stretches = [measured(stack, counters, ALONE, partial(time.sleep, _IDLE_SECONDS))]
        for _ in range(runs):
            for name, way in ways.items():
                run = partial(way, stack, spark, folder, old)
                stretches.append(measured(stack, counters, name, run))
        spark.stop()
    REPORT.write_text(json.dumps([asdict(each) for each in stretches], indent=2))
    assert all(each.tiered_bytes == 0 for each in stretches if each.what == OURS)


if __name__ == "__main__":
    main()
