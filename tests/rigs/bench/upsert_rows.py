"""How fast updates get into a table of the latest state.

By `ingest.mode=upsert`, and by Spark's own `kafka` source with `foreachBatch` and MERGE.

Both read the topic in four micro-batches of the same size, of which three find their keys in the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import DIRECT, KAFKA_TUNED, Start, landing, lane_into
from tests.rigs.bench.rig import TUNED, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of

WORKLOAD = "U"
BATCHES = 4
CLAIMS = (Claim(WORKLOAD, DIRECT, KAFKA_TUNED, 3),)
COLUMNS = ("key", "value", "timestamp")


def measure(rig: Rig, name: str, runs: int) -> Iterator[Row]:
    """Row of the claim; each side begins with no table, and must end with one row for each key."""
    lake, shape = rig.lakes[0], rig.topic(WORKLOAD)
    settle = partial(rig.settle, shape)
    limit = {"maxOffsetsPerTrigger": str(-(-shape.rows // BATCHES))}
    upsert = {
        **limit, "ingest.mode": "upsert", "ingest.keys": "key", "ingest.orderBy": "timestamp",
        "ingest.kafkaColumns": ",".join(COLUMNS),
    }  # fmt: skip
    contenders: dict[str, Contender] = {
        DIRECT: landing(lane_into(rig, shape, DIRECT, upsert), lake, shape.keys, settle),
        KAFKA_TUNED: landing(merged_by_spark(rig, shape, limit), lake, shape.keys, settle),
    }
    yield from rows_of(CLAIMS, contenders, runs)


def merged_by_spark(rig: Rig, shape: Shape, limit: dict[str, str]) -> Start:
    """The last record of each key by one aggregation, which costs less than a window, and then one MERGE."""
    options = {**rig.kafka_options(shape), **TUNED, **limit}

    def start(table: str, checkpoint: Path) -> StreamingQuery:
        empty = rig.spark.createDataFrame([], "key BINARY, value BINARY, timestamp TIMESTAMP")
        empty.write.format("delta").save(table)
        merged = DeltaTable.forPath(rig.spark, table)

        def merge(rows: DataFrame, batch_id: int) -> None:
            order = sql.struct("timestamp", "partition", "offset")
            last = rows.groupBy("key").agg(sql.max_by(sql.struct("value", "timestamp"), order).alias("last"))
            source = last.select("key", "last.*").alias("source")
            plan = merged.alias("target").merge(source, "target.key = source.key")
            plan = plan.whenMatchedDelete("source.value IS NULL").whenMatchedUpdateAll()
            plan.whenNotMatchedInsertAll("source.value IS NOT NULL").execute()

        rows = rig.spark.readStream.format("kafka").options(**options).load()
        writer = rows.writeStream.foreachBatch(merge).option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start()

    return start
