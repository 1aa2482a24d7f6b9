"""What a micro-batch costs in the steady state: 2,000 records a second in four partitions, a trigger each second.

Into a Delta table in a folder: a new one, beside Spark's own `kafka` source; and one of 100,000 files and 300 versions,
beside our Spark lane.
"""

from __future__ import annotations

import shutil
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from uuid import uuid4

from deltalake import DeltaTable
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.bench.figures import Row, spread
from tests.rigs.bench.landing import DIRECT, KAFKA_TUNED, SPARK_LANE, Start, lane_into, spark_lands
from tests.rigs.bench.rig import TUNED, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.traffic import Traffic
from tests.rigs.bench.turns import Claim, Contender, allowance, rows_of
from tests.rigs.scale.tables import write_log
from tests.rigs.stack.children import Child
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.topics import create_tiered_topic, delete_topic
from tiered_stream.delta.settings.ingest_settings import table_spec

RECORDS_PER_SECOND = 2_000
TRIGGER = "1 second"
FILES, VERSIONS = 100_000, 300
STEADY, LARGE = "J steady", "J large table"
CLAIMS = (Claim(STEADY, DIRECT, KAFKA_TUNED, 3.5, 5), Claim(STEADY, DIRECT, "0.32 s", 1, 1.6))
LARGE_CLAIMS = (Claim(LARGE, DIRECT, SPARK_LANE, 4, 8), Claim(LARGE, DIRECT, "0.8 s", 1, 2))
_ALLOWED = {"0.32 s": allowance(0.32, 1), "0.8 s": allowance(0.8, 1)}
_MOST_OF_99 = 0.65
_WARM_UP, _COUNTED = 5, 40
"""Micro-batches of one run."""
_RUNS = 1
"""Each run is a median of 40 micro-batches and takes 45 s, so that more of them would take ten minutes."""
_NEW = {"startingOffsets": "latest"}


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """A run's seconds are the median of its whole micro-batches; their 99th percentile has a row of its own."""
    with _produced(rig) as topic:
        options = {**rig.kafka_options(topic), **TUNED, **_NEW}
        ours = _Steady(rig, "new", lane_into(rig, topic, DIRECT, _NEW, TRIGGER))
        theirs = _Steady(rig, "new", spark_lands(rig.spark, options, TRIGGER))
        contenders = {DIRECT: Contender(ours.run, 1), KAFKA_TUNED: Contender(theirs.run, 1), **_ALLOWED}
        yield from rows_of(CLAIMS, contenders, min(runs, _RUNS))
    counted = ours.of_99[1:]
    yield Row(
        f"{STEADY}, 99 %", DIRECT, f"{_MOST_OF_99:g} s", spread(counted), spread([_MOST_OF_99]),
        spread([_MOST_OF_99 / each for each in counted]), 1, 1.6, {},
    )  # fmt: skip


def measure_large(rig: Rig, runs: int) -> Iterator[Row]:
    """Each lane into a copy of the table, to which its runs append."""
    files, versions = (max(1, round(each * rig.scale)) for each in (FILES, VERSIONS))
    lake = rig.lakes[0]
    table = str(lake.folder / DIRECT)
    write_log(replace(table_spec({}), uri=table), versions, max(1, files // versions))
    DeltaTable(table).create_checkpoint()
    shutil.copytree(table, lake.folder / SPARK_LANE)
    with _produced(rig) as topic:
        options = {**_NEW, "includeHeaders": "false"}
        lanes = {
            lane: Contender(_Steady(rig, lane, lane_into(rig, topic, lane, options, TRIGGER)).run, 1)
            for lane in (DIRECT, SPARK_LANE)
        }
        yield from rows_of(LARGE_CLAIMS, lanes | _ALLOWED, min(runs, _RUNS))


def ran(query: StreamingQuery, batches: int) -> list[StreamingQueryProgress]:
    """What the query tells of its micro-batches with rows, after it was stopped behind so many of them."""
    wait_until(lambda: not query.isActive or len(query.recentProgress) > batches, "batches", timeout=1e6)
    query.stop()
    if error := query.exception():
        raise error
    return [each for each in query.recentProgress if each.numInputRows]


class _Steady:
    """Runs of a query, each with a checkpoint of its own, and in a table of its own where that is `new`."""

    def __init__(self, rig: Rig, table: str, start: Start) -> None:
        self.of_99: list[float] = []
        self._folder = rig.lakes[0].folder
        self._table = table
        self._start = start

    def run(self) -> float:
        name = str(uuid4())
        table, checkpoint = self._folder / (name if self._table == "new" else self._table), self._folder.parent / name
        batches = ran(self._start(str(table), checkpoint), _WARM_UP + _COUNTED)
        seconds = [each.durationMs["triggerExecution"] / 1000 for each in batches[_WARM_UP:]]
        shutil.rmtree(checkpoint)
        self.of_99.append(statistics.quantiles(seconds, n=100)[98])
        return statistics.median(seconds)


@contextmanager
def _produced(rig: Rig) -> Iterator[Shape]:
    """A topic to which records come, until the end."""
    shape = Shape(f"steady-{uuid4()}", 0)
    create_tiered_topic(rig.stack.broker, shape.topic, shape.partitions, {"segment.bytes": str(shape.segment_bytes)})
    try:
        with Child(rig.folder / "producer.log", _produce, rig.stack.bootstrap_servers, shape.topic):
            yield shape
    finally:
        delete_topic(rig.stack.broker, shape.topic)


def _produce(connection: Connection, bootstrap_servers: str, topic: str) -> None:
    traffic = Traffic(bootstrap_servers, topic, records_per_second=RECORDS_PER_SECOND)
    producing = threading.Thread(target=traffic.produce)
    producing.start()
    connection.poll(None)  # until the other end is closed
    traffic.end()
    producing.join()
