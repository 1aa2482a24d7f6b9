"""Batch reads of a few records in a session that is warm, where what a plan costs is all there is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import TUNED, Rig
from tests.rigs.bench.turns import Claim, Contender, rows_of

RECORDS = 1_000
OURS, KAFKA = "tiered_stream", "kafka, 16 MiB fetches"
CLAIMS = {
    "A": Claim("J 1,000 tiered records", OURS, KAFKA, 1.0, 1.5),
    "G": Claim("J 1,000 records of brokers", OURS, KAFKA, 1.0, 1.5),
}


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """The first records of each partition."""
    for name, claim in CLAIMS.items():
        shape = rig.topic(name)
        ends = {str(number): RECORDS // shape.partitions for number in range(shape.partitions)}
        until = {"endingOffsets": json.dumps({shape.topic: ends})}
        contenders = {
            OURS: _contender(rig.spark, "tiered_stream", {**rig.options(shape), **until}),
            KAFKA: _contender(rig.spark, "kafka", {**rig.kafka_options(shape), **TUNED, **until}),
        }
        yield from rows_of([claim], contenders, runs)


def _contender(spark: SparkSession, source: str, options: Mapping[str, str]) -> Contender:
    def run() -> float:
        begin = time.perf_counter()
        found = spark.read.format(source).options(**options).load().select("value").toArrow().num_rows
        assert found == RECORDS, f"{found} records, not {RECORDS}"
        return time.perf_counter() - begin

    return Contender(run, RECORDS)
