"""How fast documents get into the columns of a new Delta table: by our direct lane, and by Spark's own `kafka` source,
its `from_json` or `from_avro`, and its Delta sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.avro.functions import from_avro

from tests.rigs.bench.documents import AVRO, DDL
from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import DIRECT, KAFKA_TUNED, Start, kafka_lands, landing, lane_into
from tests.rigs.bench.rig import TUNED, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType")
CLAIMS = (
    Claim("T-json", DIRECT, KAFKA_TUNED, 4, 8),
    Claim("T-avro", DIRECT, KAFKA_TUNED, 4, 8),
)


def measure(rig: Rig, name: str, runs: int) -> Iterator[Row]:
    """The row of one format; what is no document, as the record that closes a segment, gives nulls on both sides."""
    lake, shape = rig.lakes[0], rig.topic(name)
    settle = partial(rig.settle, shape)
    contenders: dict[str, Contender] = {
        DIRECT: landing(ours_into(rig, shape, name), lake, shape.rows, settle),
        KAFKA_TUNED: landing(sparks_into(rig, shape, name), lake, shape.rows, settle),
    }
    yield from rows_of([claim for claim in CLAIMS if claim.workload == name], contenders, runs)


def ours_into(rig: Rig, shape: Shape, name: str) -> Start:
    kind = name.removeprefix("T-")
    schema = {"json": DDL, "avro": AVRO}[kind]
    typed = {"ingest.value.format": kind, "ingest.value.schema": schema, "ingest.onDecodeError": "null"}
    kept = {"ingest.kafkaColumns": ", ".join(KAFKA_COLUMNS)}
    return lane_into(rig, shape, DIRECT, {**typed, **kept})


def sparks_into(rig: Rig, shape: Shape, name: str) -> Start:
    def select(records: DataFrame) -> DataFrame:
        return records.select(_decoded(name).alias("v"), *KAFKA_COLUMNS).select("v.*", *KAFKA_COLUMNS)

    return kafka_lands(rig.spark, {**rig.kafka_options(shape), **TUNED}, select=select)


def _decoded(name: str) -> Column:
    if name == "T-json":
        return sql.from_json(sql.col("value").cast("string"), DDL)
    return from_avro("value", AVRO, {"mode": "PERMISSIVE"})
