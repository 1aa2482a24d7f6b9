"""How fast Spark gets a topic into its noop sink: our source, its own, plain and tuned, and rows that are ready."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from tests.rigs.bench.figures import Row
from tests.rigs.bench.plain_clients import KAFKA_PYTHON, SOME_RECORDS, kafka_python_reads
from tests.rigs.bench.ready_made import ReadyMade
from tests.rigs.bench.rig import TUNED, WARM_UP, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of, timed

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
CLAIMS = (
    *_FROM_S3PROXY,
    *(replace(claim, subject=OURS_LIGHTER) for claim in _FROM_S3PROXY if claim.workload in _FROM_BOTH),
)


def measure(rig: Rig, name: str, runs: int) -> Iterator[Row]:
    """The rows of one shape; each of ours has runs of the others beside it, so that it comes after the same ones."""
    for ours in (OURS, OURS_LIGHTER):
        claims = [claim for claim in CLAIMS if (claim.workload, claim.subject) == (name, ours)]
        if claims:
            yield from _beside(rig, rig.topic(name), claims, runs)


def _beside(rig: Rig, shape: Shape, claims: Sequence[Claim], runs: int) -> Iterator[Row]:
    wanted = {side for claim in claims for side in (claim.subject, claim.against)}
    contenders = {side: _contender(rig, side, shape) for side in sorted(wanted)}
    warm_up = rig.topic(WARM_UP)
    for side in wanted:
        _contender(rig, side, warm_up).run()
    yield from rows_of([_titled(claim) for claim in claims], contenders, runs)


def _titled(claim: Claim) -> Claim:
    return replace(claim, workload=f"{claim.workload} noop")


def _contender(rig: Rig, side: str, shape: Shape) -> Contender:
    if side == FOR_A_RECORD_OF_A:
        return _contender(rig, OURS, rig.topic("A"))
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
    return Contender(partial(noop_seconds, rig.spark, *sources[side]), shape.rows, partial(rig.settle, shape))


def noop_seconds(spark: SparkSession, source: str, options: Mapping[str, str]) -> float:
    begin = time.perf_counter()
    rows = spark.read.format(source).options(**options).load()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin
