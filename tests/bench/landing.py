"""How fast a tiered topic gets into a new Delta table: by our two lanes, and by Spark's own `kafka` source, tuned.

Into a folder, and into a bucket of an S3 server with conditional puts, where the session's delta-spark commits.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.bench.lakes import Lake
from tests.bench.noop import PARTITIONS, TUNED, WARM_UP_TOPIC
from tests.bench.turns import take_turns
from tests.stack.tiered_stack import TieredStack
from tiered_stream import land
from tiered_stream.delta.data_files import PEAK_MEMORY
from tiered_stream.observe.metrics import OBSERVATION

Start = Callable[[str, str, Path], StreamingQuery]
"""The topic, where its table is to be, and a folder for the checkpoint."""


@dataclass
class Landed:
    """The runs of one way into the table: seconds, and the largest memory of a worker in bytes, where it is known."""

    seconds: list[float] = field(default_factory=list)
    worker_bytes: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure_landing(
    stack: TieredStack, spark: SparkSession, lake: Lake, topic: str, records: int, runs: int, kafka_runs: int
) -> dict[str, Landed]:
    """Land the whole topic in each way in turn, into a new table, with a checkpoint; every record must be there."""
    ways = {
        "direct lane": (lane_into(stack, spark, "direct"), runs),
        "Spark lane": (lane_into(stack, spark, "spark"), kafka_runs),
        "kafka, 16 MiB fetches": (kafka_into(stack, spark), kafka_runs),
    }
    landed = {name: Landed() for name in ways}
    for name, (start, _) in ways.items():
        _land(start, lake, WARM_UP_TOPIC, None, landed[name])
    # One more in each partition closed its last full segment.
    seconds = take_turns({
        name: (partial(_land, start, lake, topic, records + PARTITIONS, landed[name]), counted)
        for name, (start, counted) in ways.items()
    })  # fmt: skip
    for name, each in landed.items():
        each.seconds = seconds[name]
    return landed


def _land(start: Start, lake: Lake, topic: str, records: int | None, landed: Landed) -> float:
    """One run; its seconds. `records` must be in the table then."""
    name = f"run-{uuid4()}"
    checkpoint = lake.folder.parent / name
    begin = time.perf_counter()
    query = start(topic, f"{lake.uri}/{name}", checkpoint)
    query.awaitTermination()
    seconds = time.perf_counter() - begin
    for progress in query.recentProgress:
        observed = progress.observedMetrics.get(OBSERVATION)
        if observed is not None:
            landed.worker_bytes = max(landed.worker_bytes, observed[PEAK_MEMORY] or 0)
    check_landed(f"{lake.uri.replace('s3a:', 's3:')}/{name}", records, lake.storage_options)
    shutil.rmtree(lake.folder / name)
    shutil.rmtree(checkpoint)
    return seconds


def check_landed(uri: str, records: int | None, storage_options: Mapping[str, str] | None = None) -> None:
    """The table's files have to hold so many records; None: any number."""
    table = DeltaTable(uri, storage_options=dict(storage_options or {}))
    found = int(pc.sum(pa.table(table.get_add_actions(flatten=True))["num_records"]).as_py())
    assert records in (None, found), f"{found} records in the table, not {records}"


def lane_into(stack: TieredStack, spark: SparkSession, lane: str) -> Start:
    def start(topic: str, table: str, checkpoint: Path) -> StreamingQuery:
        options = {**stack.options(), "subscribe": topic, "startingOffsets": "earliest"}
        return land(spark, options=options, table=table, checkpoint=str(checkpoint), lane=lane)

    return start


def kafka_into(stack: TieredStack, spark: SparkSession) -> Start:
    options = {"kafka.bootstrap.servers": stack.bootstrap_servers, "startingOffsets": "earliest", **TUNED}

    def start(topic: str, table: str, checkpoint: Path) -> StreamingQuery:
        rows = spark.readStream.format("kafka").options(**options).option("subscribe", topic).load()
        writer = rows.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start(table)

    return start
