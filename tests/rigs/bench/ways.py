"""What each way of use gives, beside the same query by Spark's `kafka` source: `make bench ONLY=W`.

A stream with one changed word, which keeps Delta's own sink; a batch query whose filter and columns reach the source;
and `land`. Also how many bytes the broker sent of the topic, by the broker's own counter.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from kafka.protocol.consumer.offsets import OffsetSpec
from pyspark.sql import DataFrame

from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import (
    DIRECT,
    KAFKA_TUNED,
    Start,
    check_landed,
    kafka_into,
    landing,
    lane_into,
    spark_lands,
)
from tests.rigs.bench.rig import TUNED, WARM_UP, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.rigs.soak.held import MIB
from tests.rigs.stack.topics import offsets

SHAPE = "A"
ONE_WORD = "one changed word, Delta's own sink"
LAST_QUARTER, KAFKA_LAST_QUARTER = "the last quarter by a batch query", "the same by kafka, 16 MiB fetches"
SENT = "MiB sent by the broker"
CLAIMS = (Claim("W", ONE_WORD, KAFKA_TUNED), Claim("W", DIRECT, KAFKA_TUNED))
LAST_QUARTER_CLAIM = Claim("W", LAST_QUARTER, KAFKA_LAST_QUARTER)
_COLUMNS = ("partition", "offset", "timestamp", "value")
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """Every run lands in a new table of a folder; every record that the query asks for must be there."""
    shape = rig.topic(SHAPE)
    starts: Mapping[str, Callable[[Shape], Start]] = {
        ONE_WORD: partial(_one_word, rig),
        DIRECT: partial(lane_into, rig, side=DIRECT),
        KAFKA_TUNED: partial(kafka_into, rig),
    }
    for start in starts.values():
        _stream(rig, rig.topic(WARM_UP), start).run()
    yield from _rows(CLAIMS, {side: _stream(rig, shape, start) for side, start in starts.items()}, runs)
    queries = {
        LAST_QUARTER: ("tiered_stream", {**rig.options(shape), "remote.filter.pushdown": "true"}),
        KAFKA_LAST_QUARTER: ("kafka", {**rig.kafka_options(shape), **TUNED}),
    }
    contenders = {side: _batch(rig, shape, *query) for side, query in queries.items()}
    yield from _rows([LAST_QUARTER_CLAIM], contenders, runs)


def _rows(claims: Sequence[Claim], contenders: Mapping[str, Contender], runs: int) -> Iterator[Row]:
    for row in rows_of(claims, contenders, runs):
        yield replace(row, more={**row.more, f"{SENT} for {row.against}": contenders[row.against].more[SENT]})


def _one_word(rig: Rig, shape: Shape) -> Start:
    return spark_lands(rig.spark, rig.options(shape), source="tiered_stream")


def _stream(rig: Rig, shape: Shape, start: Callable[[Shape], Start]) -> Contender:
    return _counted(rig, shape, landing(rig, shape, start(shape)))


def _batch(rig: Rig, shape: Shape, source: str, options: Mapping[str, str]) -> Contender:
    """A query for the last quarter of the offsets and four of the columns."""
    ends = offsets(rig.stack.broker, shape.topic, OffsetSpec.LATEST).values()
    first = max(ends) * 3 // 4
    columns = {"columns": ",".join(_COLUMNS)} if source == "tiered_stream" else {}

    def query() -> DataFrame:
        records = rig.spark.read.format(source).options(**options, **columns).load()
        return records.where(f"offset >= {first}").select(*_COLUMNS)

    def run() -> float:
        table = rig.lakes[0].folder / f"run-{uuid4()}"
        rig.spark.conf.set(_PUSHDOWN, "true")
        begin = time.perf_counter()
        query().write.format("delta").save(str(table))
        seconds = time.perf_counter() - begin
        rig.spark.conf.unset(_PUSHDOWN)
        check_landed(str(table), records)
        shutil.rmtree(table)
        return seconds

    records = sum(max(0, end - first) for end in ends)
    return _counted(rig, shape, Contender(run, records, partial(rig.settle, shape)))


def _counted(rig: Rig, shape: Shape, contender: Contender) -> Contender:
    """The contender, which also tells what the broker sent of the topic in a run."""
    land = contender.run

    def run() -> float:
        before = rig.broker_counters(shape.topic)
        seconds = land()
        contender.tell(**{SENT: round(rig.broker_counters(shape.topic).since(before).bytes_out / MIB, 1)})
        return seconds

    contender.run = run
    return contender
