"""How long it takes to compare a Delta table with its tiered topic, beside reading both into the noop sink."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial

from pyspark.sql import SparkSession

from tests.rigs.bench.figures import Row
from tests.rigs.bench.noop import noop_seconds
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tiered_stream import land, verify
from tiered_stream.verification.verify_report import VerifyReport

VERIFY, READS = "verify", "topic and table into noop"
CLAIMS = (Claim("verify A", VERIFY, READS),)


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """Land the whole topic, headers too, and compare; every record must be found equal."""
    shape = rig.topic("A")
    options = {**rig.options(shape), "includeHeaders": "true"}
    table, checkpoint = (str(rig.folder / name) for name in ("verified", "verified-checkpoint"))
    land(rig.spark, options=options, table=table, checkpoint=checkpoint).awaitTermination()
    contenders = {
        VERIFY: Contender(partial(_verify, rig.spark, options, table, shape.rows), shape.rows),
        READS: Contender(partial(_reads, rig.spark, options, table), shape.rows),
    }
    yield from rows_of(CLAIMS, contenders, runs)


def _verify(spark: SparkSession, options: Mapping[str, str], table: str, records: int) -> float:
    begin = time.perf_counter()
    report = verify(spark, options=options, table=table)
    assert isinstance(report, VerifyReport) and (report.equal, report.records) == (True, records), report.summary()
    return time.perf_counter() - begin


def _reads(spark: SparkSession, options: Mapping[str, str], table: str) -> float:
    topic = noop_seconds(spark, "tiered_stream", options)
    begin = time.perf_counter()
    spark.read.format("delta").load(table).write.format("noop").mode("overwrite").save()
    return topic + time.perf_counter() - begin
