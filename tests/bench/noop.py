"""How fast Spark gets a tiered topic into its noop sink: our source, and its own `kafka` source, plain and tuned."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

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
    """The sources take turns, so that a slow moment of the machine hits all of them."""
    kafka = {"kafka.bootstrap.servers": stack.bootstrap_servers}
    contenders: dict[str, tuple[str, Mapping[str, str], int]] = {
        "ours": ("tiered_stream", stack.options(), runs),
        "kafka": ("kafka", kafka, kafka_runs),
        "kafka_tuned": ("kafka", {**kafka, **TUNED}, kafka_runs),
    }
    for source, options, _ in contenders.values():
        _seconds(spark, source, options, WARM_UP_TOPIC)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(max(runs, kafka_runs)):
        for name, (source, options, wanted) in contenders.items():
            if turn < wanted:
                seconds[name].append(_seconds(spark, source, options, topic))
    return NoopRates(records, **{name: statistics.median(times) for name, times in seconds.items()})


def _seconds(spark: SparkSession, source: str, options: Mapping[str, str], topic: str) -> float:
    begin = time.perf_counter()
    rows = spark.read.format(source).options(**options).option("subscribe", topic).load()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin
