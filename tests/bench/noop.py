"""How fast Spark gets a tiered topic into its noop sink: our source, and its own `kafka` source, plain and tuned."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from tests.bench.turns import take_turns
from tests.stack.bulk import produce_bulk
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, roll, wait_until_tiered

PARTITIONS = 4
SEGMENT_BYTES = 64 << 20
TUNED = {"kafka.max.partition.fetch.bytes": str(16 << 20), "kafka.fetch.max.bytes": str(64 << 20)}
WARM_UP_TOPIC = "warm-up"


@dataclass(frozen=True)
class NoopRates:
    """Seconds to read `records`, the median of some runs."""

    records: int
    ours: float
    kafka: float
    kafka_tuned: float


def fill(stack: TieredStack, topic: str, records: int, record_bytes: int) -> None:
    """A topic whose records are nearly all in S3 only."""
    create_tiered_topic(stack.broker, topic, PARTITIONS, {"segment.bytes": str(SEGMENT_BYTES)})
    produce_bulk(stack.broker, topic, records, record_bytes)
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic, timeout=300)


def measure_noop(
    stack: TieredStack, spark: SparkSession, topic: str, records: int, runs: int, kafka_runs: int
) -> NoopRates:
    """Read the whole topic by each source in turn."""
    kafka = {"kafka.bootstrap.servers": stack.bootstrap_servers}
    sources: dict[str, tuple[str, Mapping[str, str], int]] = {
        "ours": ("tiered_stream", stack.options(), runs),
        "kafka": ("kafka", kafka, kafka_runs),
        "kafka_tuned": ("kafka", {**kafka, **TUNED}, kafka_runs),
    }
    for source, options, _ in sources.values():
        noop_seconds(spark, source, options, WARM_UP_TOPIC)
    seconds = take_turns({
        name: (partial(noop_seconds, spark, source, options, topic), counted)
        for name, (source, options, counted) in sources.items()
    })  # fmt: skip
    return NoopRates(records, **{name: statistics.median(times) for name, times in seconds.items()})


def noop_seconds(spark: SparkSession, source: str, options: Mapping[str, str], topic: str) -> float:
    begin = time.perf_counter()
    rows = spark.read.format(source).options(**options).option("subscribe", topic).load()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin
