"""How fast rows that are made of records get into a new Delta table: typed columns, SQL, and the latest state.

By our direct lane, and by Spark's own `kafka` source with its own functions and its Delta sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.bench.documents import AVRO, DDL
from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import DIRECT, KAFKA_TUNED, Start, kafka_into, landing, lane_into
from tests.rigs.bench.rig import TUNED, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType")
TYPED_CLAIMS = (
    Claim("T-json", DIRECT, KAFKA_TUNED, 4, 8),
    Claim("T-avro", DIRECT, KAFKA_TUNED, 4, 8),
)


def measure_typed(rig: Rig, name: str, runs: int) -> Iterator[Row]:
    """The row of one format; what is no document, as the record that closes a segment, gives nulls on both sides."""
    shape = rig.topic(name)
    contenders: dict[str, Contender] = {
        DIRECT: landing(rig, shape, ours_into(rig, shape, name)),
        KAFKA_TUNED: landing(rig, shape, sparks_into(rig, shape, name)),
    }
    yield from rows_of([claim for claim in TYPED_CLAIMS if claim.workload == name], contenders, runs)


def ours_into(rig: Rig, shape: Shape, name: str) -> Start:
    kind = name.removeprefix("T-")
    schema = {"json": DDL, "avro": AVRO}[kind]
    typed = {"ingest.value.format": kind, "ingest.value.schema": schema, "ingest.onDecodeError": "null"}
    kept = {"ingest.kafkaColumns": ", ".join(KAFKA_COLUMNS)}
    return lane_into(rig, shape, DIRECT, {**typed, **kept})


def sparks_into(rig: Rig, shape: Shape, name: str) -> Start:
    def select(records: DataFrame) -> DataFrame:
        return records.select(_decoded(name).alias("v"), *KAFKA_COLUMNS).select("v.*", *KAFKA_COLUMNS)

    return kafka_into(rig, shape, select)


def _decoded(name: str) -> Column:
    if name == "T-json":
        return sql.from_json(sql.col("value").cast("string"), DDL)
    return from_avro("value", AVRO, {"mode": "PERMISSIVE"})


SQL, WITH_SQL = "T-sql", "direct lane with SQL"
SELECT = (
    "key AS id", "value AS body", "length(value) AS size", "CAST(partition AS BIGINT) AS part",
    "offset AS kafka_offset", "unix_millis(timestamp) AS at_ms",
)  # fmt: skip
WHERE = "offset % 10 <> 3 AND length(value) > 0"
SQL_CLAIMS = (Claim(SQL, WITH_SQL, KAFKA_TUNED, 4, 5), Claim(SQL, WITH_SQL, DIRECT, 0.6, 0.8))


def measure_sql(rig: Rig, runs: int) -> Iterator[Row]:
    """Rows of both claims; each side reads all of A, and a tenth of the records is left out by the condition."""
    shape = rig.topic("A")
    sql = {"ingest.select": ", ".join(SELECT), "ingest.where": WHERE}
    by_spark = kafka_into(rig, shape, lambda rows: rows.where(WHERE).selectExpr(*SELECT))
    contenders: dict[str, Contender] = {
        WITH_SQL: landing(rig, shape, lane_into(rig, shape, DIRECT, sql), whole=False),
        DIRECT: landing(rig, shape, lane_into(rig, shape, DIRECT)),
        KAFKA_TUNED: landing(rig, shape, by_spark, whole=False),
    }
    yield from rows_of(SQL_CLAIMS, contenders, runs)


UPSERT = "U"
UPSERT_BATCHES = 4
UPSERT_CLAIMS = (Claim(UPSERT, DIRECT, KAFKA_TUNED, 3),)
UPSERT_COLUMNS = ("key", "value", "timestamp")


def measure_upsert(rig: Rig, runs: int) -> Iterator[Row]:
    """Row of the claim; each side begins with no table, and must end with one row for each key."""
    shape = rig.topic(UPSERT)
    limit = {"maxOffsetsPerTrigger": str(-(-shape.rows // UPSERT_BATCHES))}
    upsert = {
        **limit, "ingest.mode": "upsert", "ingest.keys": "key", "ingest.orderBy": "timestamp",
        "ingest.kafkaColumns": ",".join(UPSERT_COLUMNS),
    }  # fmt: skip
    contenders: dict[str, Contender] = {
        DIRECT: landing(rig, shape, lane_into(rig, shape, DIRECT, upsert), records=shape.keys),
        KAFKA_TUNED: landing(rig, shape, merged_by_spark(rig, shape, limit), records=shape.keys),
    }
    yield from rows_of(UPSERT_CLAIMS, contenders, runs)


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
