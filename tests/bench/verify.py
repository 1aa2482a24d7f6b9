"""How long it takes to compare a Delta table with its tiered topic, beside reading the topic into the noop sink."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench.noop import PARTITIONS, noop_seconds
from tests.bench.turns import take_turns
from tests.stack.tiered_stack import TieredStack
from tiered_stream import land, verify


@dataclass(frozen=True)
class VerifyTimes:
    """Seconds, the median of some runs: to verify `records`, to read them from the topic, and from the table."""

    records: int
    verify: float
    topic: float
    table: float


def measure_verify(stack: TieredStack, spark: SparkSession, topic: str, records: int, runs: int) -> VerifyTimes:
    """Land the whole topic, headers too, and compare; every record must be found equal."""
    options = {**stack.options(), "startingOffsets": "earliest", "includeHeaders": "true"}
    with tempfile.TemporaryDirectory(prefix="tiered-stream-bench-") as name:
        table = str(Path(name) / "table")
        given = {**options, "subscribe": topic}
        land(spark, options=given, table=table, checkpoint=str(Path(name) / "checkpoint")).awaitTermination()
        seconds = take_turns({
            "verify": (partial(_verify, spark, given, table, records + PARTITIONS), runs),
            "topic": (partial(noop_seconds, spark, "tiered_stream", options, topic), runs),
            "table": (partial(_table_seconds, spark, table), runs),
        })  # fmt: skip
    return VerifyTimes(records, **{name: statistics.median(times) for name, times in seconds.items()})


def _verify(spark: SparkSession, options: Mapping[str, str], table: str, records: int) -> float:
    begin = time.perf_counter()
    report = verify(spark, options=options, table=table)
    assert (report.equal, report.records) == (True, records), report.summary()
    return time.perf_counter() - begin


def _table_seconds(spark: SparkSession, table: str) -> float:
    begin = time.perf_counter()
    spark.read.format("delta").load(table).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin
