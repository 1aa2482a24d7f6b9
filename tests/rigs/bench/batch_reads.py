"""How fast batch queries read topics: into Spark's noop sink, a few records, and all of it to compare it with a table.

Into the noop sink: our source, Spark's own, plain and tuned, and rows that are ready; and whether cost grows straight
with the work, apart from start-up: four and sixteen times A beside A.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from tests.rigs.bench.figures import Row, spread
from tests.rigs.bench.one_process import KAFKA_PYTHON, SOME_RECORDS, kafka_python_reads
from tests.rigs.bench.ready_made import ReadyMade
from tests.rigs.bench.rig import TUNED, WARM_UP, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of, take_turns, timed
from tiered_stream import land, verify
from tiered_stream.verification.verify_report import VerifyReport

OURS, OURS_LIGHTER = "tiered_stream", "tiered_stream, from versitygw"
KAFKA, KAFKA_TUNED, HAND_OVER = "kafka", "kafka, 16 MiB fetches", "ready Arrow batches"
FOR_A_RECORD_OF_A = "A, for a record"

_FROM_S3PROXY = (
    Claim("A", OURS, KAFKA, 3.8, 4.6),
    Claim("A", OURS, KAFKA_TUNED, 3.4, 4.2),
    Claim("A", OURS, HAND_OVER, 0.8, 0.95),
    Claim("A4", OURS, HAND_OVER, 0.8, 0.95),
    Claim("B", OURS, KAFKA_TUNED, 3.2, 4.5),
    Claim("B", OURS, HAND_OVER, 0.8, 0.95),
    Claim("C-lz4", OURS, KAFKA_TUNED, 3.5, 4.4),
    Claim("C-zstd", OURS, KAFKA_TUNED, 3.2, 4.2),
    Claim("D", OURS, KAFKA_TUNED, 3, 4),
    Claim("E", OURS, KAFKA_TUNED, 3.2, 4.2),
    Claim("G", OURS, KAFKA_TUNED, 2.8, 3.5),
    Claim("K", OURS, KAFKA_TUNED, 2.2, 3),
    Claim("K", OURS, KAFKA_PYTHON, 10, 30),
    Claim("K", OURS, FOR_A_RECORD_OF_A, 0.3, 0.6),
    Claim("M", OURS, KAFKA_TUNED, 4, 5),
    Claim("N", OURS, KAFKA_TUNED),
)
_FROM_BOTH = ("A", "A4", "B", "E", "M")
"""Where S3Proxy takes a good share of the cores. The broker's tier is a folder, so `kafka` asks no S3 server."""
NOOP_CLAIMS = (
    *_FROM_S3PROXY,
    *(replace(claim, subject=OURS_LIGHTER) for claim in _FROM_S3PROXY if claim.workload in _FROM_BOTH),
)


def measure_noop(rig: Rig, name: str, runs: int) -> Iterator[Row]:
    """The rows of one shape."""
    shape, claims = rig.topic(name), [claim for claim in NOOP_CLAIMS if claim.workload == name]
    wanted = {side for claim in claims for side in (claim.subject, claim.against)}
    contenders = {side: _noop_contender(rig, side, shape) for side in sorted(wanted)}
    warm_up = rig.topic(WARM_UP)
    for side in wanted:
        _noop_contender(rig, side, warm_up).run()
    titled = [replace(claim, workload=f"{claim.workload} noop") for claim in claims]
    yield from rows_of(titled, contenders, runs)


def _noop_contender(rig: Rig, side: str, shape: Shape) -> Contender:
    if side == FOR_A_RECORD_OF_A:
        return _noop_contender(rig, OURS, rig.topic("A"))
    if side == KAFKA_PYTHON:
        some = min(SOME_RECORDS, shape.records)
        reads = partial(kafka_python_reads, rig.stack.bootstrap_servers, shape, some)
        return Contender(timed(reads), some, partial(rig.settle, shape))
    sources: Mapping[str, tuple[str, Mapping[str, str]]] = {
        OURS: ("tiered_stream", rig.options(shape)),
        OURS_LIGHTER: ("tiered_stream", rig.lighter_options(shape)),
        KAFKA: ("kafka", rig.kafka_options(shape)),
        KAFKA_TUNED: ("kafka", {**rig.kafka_options(shape), **TUNED}),
        HAND_OVER: (ReadyMade.name(), {"rows": str(shape.rows), "bytes": str(shape.record_bytes)}),
    }
    if side == HAND_OVER:
        rig.spark.dataSource.register(ReadyMade)
    return noop(rig, shape, *sources[side])


def noop(rig: Rig, shape: Shape, source: str, options: Mapping[str, str]) -> Contender:
    return Contender(partial(noop_seconds, rig.spark, source, options), shape.rows, partial(rig.settle, shape))


def noop_seconds(spark: SparkSession, source: str, options: Mapping[str, str]) -> float:
    begin = time.perf_counter()
    rows = spark.read.format(source).options(**options).load()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


SMALL_RECORDS = 1_000
SMALL_CLAIMS = {
    "A": Claim("J 1,000 tiered records", OURS, KAFKA_TUNED, 1.0, 1.5),
    "G": Claim("J 1,000 records of brokers", OURS, KAFKA_TUNED, 1.0, 1.5),
}


def measure_small(rig: Rig, runs: int) -> Iterator[Row]:
    """The first records of each partition."""
    for name, claim in SMALL_CLAIMS.items():
        shape = rig.topic(name)
        ends = {str(number): SMALL_RECORDS // shape.partitions for number in range(shape.partitions)}
        until = {"endingOffsets": json.dumps({shape.topic: ends})}
        contenders = {
            OURS: _small_contender(rig.spark, "tiered_stream", {**rig.options(shape), **until}),
            KAFKA_TUNED: _small_contender(rig.spark, "kafka", {**rig.kafka_options(shape), **TUNED, **until}),
        }
        yield from rows_of([claim], contenders, runs)


def _small_contender(spark: SparkSession, source: str, options: Mapping[str, str]) -> Contender:
    def run() -> float:
        begin = time.perf_counter()
        found = spark.read.format(source).options(**options).load().select("value").toArrow().num_rows
        assert found == SMALL_RECORDS, f"{found} records, not {SMALL_RECORDS}"
        return time.perf_counter() - begin

    return Contender(run, SMALL_RECORDS)


VERIFY, READS = "verify", "topic and table into noop"
VERIFY_CLAIMS = (Claim("verify A", VERIFY, READS),)


def measure_verify(rig: Rig, runs: int) -> Iterator[Row]:
    """Land the whole topic, headers too, and compare; every record must be found equal."""
    shape = rig.topic("A")
    options = {**rig.options(shape), "includeHeaders": "true"}
    table, checkpoint = (str(rig.folder / name) for name in ("verified", "verified-checkpoint"))
    land(rig.spark, options=options, table=table, checkpoint=checkpoint).awaitTermination()
    contenders = {
        VERIFY: Contender(partial(_verify, rig.spark, options, table, shape.rows), shape.rows),
        READS: Contender(partial(_reads, rig.spark, options, table), shape.rows),
    }
    yield from rows_of(VERIFY_CLAIMS, contenders, runs)


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


BASE = "A"
TIMES = (4, 16)
_WORST, _BEST = 0.85, 0.95
"""Of straight: what a record of A takes, by what one of the larger topic does."""


@dataclass(frozen=True)
class Growth:
    """Names of contenders: `larger` is so many times `base`, and `start` is next to nothing."""

    base: str
    larger: str
    start: str
    times: float


def measure_straight(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each size; one that is not there yet is made."""
    base = rig.topic(BASE)
    larger = {f"{times} times {BASE}": rig.made(_times(rig, times)) for times in TIMES}
    shapes = {WARM_UP: rig.topic(WARM_UP), BASE: base, **larger}
    seconds = take_turns(
        {name: noop(rig, shape, "tiered_stream", rig.options(shape)) for name, shape in shapes.items()}, runs
    )
    for name, shape in larger.items():
        yield straight(f"S {name}", OURS, Growth(BASE, name, WARM_UP, shape.rows / base.rows), seconds)


def straight(workload: str, subject: str, growth: Growth, seconds: Mapping[str, list[float]]) -> Row:
    """`against_seconds` are those of the larger one if each of its parts took what one of the base takes."""
    own, least, starts = (seconds[each] for each in (growth.larger, growth.base, growth.start))
    grown = [start + (few - start) * growth.times for few, start in zip(least, starts, strict=True)]
    ratios = [(all_of_it - start) / (took - start) for all_of_it, took, start in zip(grown, own, starts, strict=True)]
    against = f"straight from {growth.base}"
    return Row(workload, subject, against, spread(own), spread(grown), spread(ratios), _WORST, _BEST, {})


def _times(rig: Rig, times: int) -> Shape:
    known = rig.shapes.get(f"{BASE}{times}")
    return known or replace(rig.shapes[BASE], name=f"{BASE}{times}", records=rig.shapes[BASE].records * times)
