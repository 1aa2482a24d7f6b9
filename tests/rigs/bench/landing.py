"""How fast a topic gets into a new Delta table: by our two lanes, by Spark's own `kafka` source, tuned, and by no more
than reading the objects and writing Parquet files.

Into a folder, and into a bucket of an S3 server with conditional puts, where the session's delta-spark commits.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.bench.bare import read_and_write
from tests.rigs.bench.figures import Row, spread
from tests.rigs.bench.rig import TUNED, WARM_UP, Lake, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.rigs.soak.held import MIB
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import AVAILABLE_NOW
from tiered_stream.delta.write.data_files import PEAK_MEMORY
from tiered_stream.observe.read_metrics import OBSERVATION

Start = Callable[[str, Path], StreamingQuery]
"""Where the table is to be, and a folder for the checkpoint."""

DIRECT, DAYS, SPARK_LANE = "direct lane", "direct lane, day column, zstd", "Spark lane"
WORKER_MIB, MOST_WORKER_MIB = "worker MiB", {"N100": 1024.0}
_BY_DEFAULT_MIB = 400.0
FETCHED, MOST_FETCHED = "fetched bytes", 1.02
"""Of S3, as a part of the topic's segments."""
KAFKA_TUNED, BARE = "kafka, 16 MiB fetches", "bare read and Parquet write"
KAFKA_OF_A = "kafka, 16 MiB fetches, for a record of A"
"""In place of `kafka` on A4, which takes the same for each record, and four minutes."""

CLAIMS = (
    Claim("A", DIRECT, KAFKA_TUNED, 6.5, 8),
    Claim("A", SPARK_LANE, KAFKA_TUNED),
    Claim("A", DAYS, KAFKA_TUNED),
    Claim("A4", DIRECT, KAFKA_OF_A, 8, 12),
    Claim("A4", DIRECT, BARE, 0.6, 0.85),
    Claim("B", DIRECT, KAFKA_TUNED, 4.5, 8),
    Claim("C-lz4", DIRECT, KAFKA_TUNED, 6, 9),
    Claim("C-zstd", DIRECT, KAFKA_TUNED, 6.5, 9),
    Claim("E", DIRECT, KAFKA_TUNED, 4.5, 7),
    Claim("G", DIRECT, KAFKA_TUNED, 4, 6),
    Claim("K", DIRECT, KAFKA_TUNED, 3, 4),
    Claim("M", DIRECT, KAFKA_TUNED, 9, 12),
    Claim("N", DIRECT, KAFKA_TUNED),
    Claim("N100", DIRECT, BARE),
)


def measure(rig: Rig, name: str, runs: int) -> Iterator[Row]:
    """The rows of one shape, in a folder; those of A in S3 as well."""
    claims = [claim for claim in CLAIMS if claim.workload == name]
    for lake in rig.lakes if name == "A" else rig.lakes[:1]:
        if claims:
            wanted = {side for claim in claims for side in (claim.subject, claim.against)}
            contenders = {side: _contender(rig, lake, side, rig.topic(name)) for side in sorted(wanted)}
            warm_up = rig.topic(WARM_UP)
            for side in wanted:
                _contender(rig, lake, side, warm_up).run()
            titled = [replace(each, workload=f"H {each.workload} {lake.where}") for each in claims]
            yield from rows_of(titled, contenders, runs)
            yield from _bounds(rig, name, f"H {name} {lake.where}", contenders)


def _bounds(rig: Rig, name: str, workload: str, contenders: Mapping[str, Contender]) -> Iterator[Row]:
    """What a worker of the direct lane took at most, and what all fetched, beside what they may; not seconds."""
    told = contenders[DIRECT].more if DIRECT in contenders else {}
    if WORKER_MIB in told:
        yield _bound(f"{workload}, MiB of a worker", told[WORKER_MIB], MOST_WORKER_MIB.get(name, _BY_DEFAULT_MIB), 1.1)
    tiered = sum(file.stat().st_size for file in rig.tier_files(rig.topic(name)))
    if tiered:
        yield _bound(f"{workload}, MiB of S3", told[FETCHED] / MIB, MOST_FETCHED * tiered / MIB, MOST_FETCHED)


def _bound(workload: str, took: float, most: float, aim: float) -> Row:
    ratio = spread([most / took])
    return Row(workload, DIRECT, f"{most:.0f} MiB", spread([took]), spread([most]), ratio, 1, aim, {})


def _contender(rig: Rig, lake: Lake, side: str, shape: Shape) -> Contender:
    if side == BARE:
        return Contender(lambda: read_and_write(rig, shape), shape.rows, partial(rig.settle, shape))
    if side == KAFKA_OF_A:
        return _contender(rig, lake, KAFKA_TUNED, rig.topic("A"))
    start = kafka_into(rig, shape) if side == KAFKA_TUNED else lane_into(rig, shape, side)
    return landing(rig, shape, start, lake)


def landing(
    rig: Rig, shape: Shape, start: Start, lake: Lake | None = None, records: int | None = None, *, whole: bool = True
) -> Contender:
    """Each run lands everything in a new table, with a new checkpoint; every record must be there if `whole`."""
    lake, records = lake or rig.lakes[0], records or shape.rows

    def run() -> float:
        name = f"run-{uuid4()}"
        checkpoint = lake.folder.parent / name
        begin = time.perf_counter()
        query = start(f"{lake.uri}/{name}", checkpoint)
        query.awaitTermination()
        seconds = time.perf_counter() - begin
        contender.tell(**told(query))
        check_landed(f"{lake.uri.replace('s3a:', 's3:')}/{name}", records if whole else None, lake.storage_options)
        shutil.rmtree(lake.folder / name)
        shutil.rmtree(checkpoint)
        return seconds

    contender = Contender(run, records, partial(rig.settle, shape))
    return contender


def told(query: StreamingQuery) -> dict[str, float]:
    """What the tasks of our direct lane have told of themselves: the largest memory of one, and what they fetched."""
    found = [each.observedMetrics.get(OBSERVATION) for each in query.recentProgress]
    observed = [each.asDict() for each in found if each is not None]
    if not observed:
        return {}
    return {
        WORKER_MIB: max((each[PEAK_MEMORY] or 0) for each in observed) // MIB,
        FETCHED: sum((each["remote_fetch_bytes"] or 0) for each in observed),
    }


def check_landed(uri: str, records: int | None, storage_options: Mapping[str, str] | None = None) -> None:
    """The table's files have to hold so many records; None: any number."""
    table = DeltaTable(uri, storage_options=dict(storage_options or {}))
    found = int(pc.sum(pa.table(table.get_add_actions(flatten=True))["num_records"]).as_py())
    assert records in (None, found), f"{found} records in the table, not {records}"


def lane_into(
    rig: Rig, shape: Shape, side: str, others: Mapping[str, str] | None = None, trigger: str = AVAILABLE_NOW
) -> Start:
    """`side`: which lane; `others` are options on top."""
    days = {"ingest.dayColumn": "day", "ingest.compression": "zstd"} if side == DAYS else {}
    options = {**rig.options(shape), **days, **(others or {})}
    lane = "spark" if side == SPARK_LANE else "direct"

    def start(table: str, checkpoint: Path) -> StreamingQuery:
        given = {"table": table, "checkpoint": str(checkpoint), "trigger": trigger, "lane": lane}
        return land(rig.spark, options=options, **given)

    return start


def kafka_into(rig: Rig, shape: Shape, select: Callable[[DataFrame], DataFrame] = lambda records: records) -> Start:
    """Spark's own source and its own sink; `select` says what of the records is landed."""
    return spark_lands(rig.spark, {**rig.kafka_options(shape), **TUNED}, select=select)


def spark_lands(
    spark: SparkSession,
    options: Mapping[str, str],
    interval: str | None = None,
    select: Callable[[DataFrame], DataFrame] = lambda records: records,
    source: str = "kafka",
) -> Start:
    """Spark's own sink, with a trigger so long, or for what is there now."""
    trigger: dict[str, Any] = {"processingTime": interval} if interval else {"availableNow": True}

    def start(table: str, checkpoint: Path) -> StreamingQuery:
        rows = select(spark.readStream.format(source).options(**options).load())
        writer = rows.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
        return writer.trigger(**trigger).start(table)

    return start
