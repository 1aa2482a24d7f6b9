"""The same topic into a new Delta table, by our source and by Spark's own `kafka` source, one after the other.

Both run in one Spark that is warm, in micro-batches of the same size, and nothing else runs meanwhile. What the broker
sent is what the broker itself has counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.bench.landing import spark_lands
from tests.rigs.bench.rig import TUNED
from tests.rigs.demo.runs import WHOLE_TOPIC, Run, checkpoint_of, timed
from tests.rigs.demo.topic import TOPIC
from tests.rigs.stack.broker_counters import Counters, read_counters
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream import land
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.options.remote_options import REPORT_ADDRESSES
from tiered_stream.spark.report_addresses import addresses_option

OURS, KAFKA = "tiered_stream", "Spark's kafka source, 16 MiB fetches"
TRIGGER = {"maxOffsetsPerTrigger": "1000000"}

Start = Callable[[Path, str], StreamingQuery]
"""The table to land in, and where tasks of ours report what reading cost."""


@dataclass(frozen=True)
class Landed:
    """What one of them did; `micro_batches` has the seconds since its start at which rows got into the table."""

    run: Run
    broker: Counters
    micro_batches: tuple[tuple[float, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.micro_batches)

    @property
    def rate(self) -> float:
        """Rows a second, once it has started."""
        return self.rows / self.run.seconds


def starts(spark: SparkSession, stack: TieredStack) -> Mapping[str, Start]:
    """How each is started, as a user would."""

    def ours(table: Path, metrics: str) -> StreamingQuery:
        options = {**stack.options(), **WHOLE_TOPIC, **TRIGGER, REPORT_ADDRESSES.name: metrics}
        return land(spark, options=options, table=str(table), checkpoint=str(checkpoint_of(table)), lane="direct")

    def kafka(table: Path, _: str) -> StreamingQuery:
        servers = {"kafka.bootstrap.servers": stack.bootstrap_servers}
        start = spark_lands(spark, {**servers, **TUNED, **WHOLE_TOPIC, **TRIGGER})
        return start(str(table), checkpoint_of(table))

    return {OURS: ours, KAFKA: kafka}


def warm_up(starting: Mapping[str, Start], folder: Path) -> None:
    """Let each land what the topic has so far: modules are loaded then, and the JVM has compiled its code."""
    for number, start in enumerate(starting.values()):
        _land(start, folder / f"warm-up-{number}")


def race(starting: Mapping[str, Start], stack: TieredStack, jmx_port: int, folder: Path) -> dict[str, Landed]:
    """Let each land the whole topic."""
    landed = {}
    before = read_counters(stack.broker, jmx_port, TOPIC)
    for number, (name, start) in enumerate(starting.items()):
        table = folder / f"raced-{number}"
        begin = time.time()
        run = _land(start, table)
        after = read_counters(stack.broker, jmx_port, TOPIC)
        landed[name] = Landed(run, after.since(before), micro_batches(table, begin))
        before = after
    return landed


def _land(start: Start, table: Path) -> Run:
    with MetricsReceiver() as receiver:
        begin = time.time()
        start(table, addresses_option(receiver.report_to)).awaitTermination()
        return timed(table, begin, receiver.total())


def micro_batches(table: Path, begin: float) -> tuple[tuple[float, int], ...]:
    """Of each commit that brought rows: when, in seconds since `begin`, and how many."""
    commits = sorted((table / "_delta_log").glob("*.json"))
    found = [(file.stat().st_mtime - begin, _added(file)) for file in commits]
    return tuple((seconds, rows) for seconds, rows in found if rows)


def _added(commit: Path) -> int:
    actions = map(json.loads, commit.read_text().splitlines())
    return sum(json.loads(action["add"]["stats"])["numRecords"] for action in actions if "add" in action)
