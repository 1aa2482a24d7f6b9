"""How fast a filter, casts and renames land: by SQL in the direct lane, beside the lane without SQL, and beside Spark's
own `kafka` source with the same SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import DIRECT, KAFKA_TUNED, Start, landing, lane_into
from tests.rigs.bench.rig import TUNED, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of

WORKLOAD, WITH_SQL = "T-sql", "direct lane with SQL"
SELECT = (
    "key AS id", "value AS body", "length(value) AS size", "CAST(partition AS BIGINT) AS part",
    "offset AS kafka_offset", "unix_millis(timestamp) AS at_ms",
)  # fmt: skip
WHERE = "offset % 10 <> 3 AND length(value) > 0"
CLAIMS = (Claim(WORKLOAD, WITH_SQL, KAFKA_TUNED, 4, 5), Claim(WORKLOAD, WITH_SQL, DIRECT, 0.6, 0.8))


def measure(rig: Rig, name: str, runs: int) -> Iterator[Row]:
    """Rows of both claims; each side reads all of A, and a tenth of the records is left out by the condition."""
    lake, shape = rig.lakes[0], rig.topic("A")
    settle = partial(rig.settle, shape)
    sql = {"ingest.select": ", ".join(SELECT), "ingest.where": WHERE}
    contenders: dict[str, Contender] = {
        WITH_SQL: landing(lane_into(rig, shape, DIRECT, sql), lake, shape.rows, settle, whole=False),
        DIRECT: landing(lane_into(rig, shape, DIRECT), lake, shape.rows, settle),
        KAFKA_TUNED: landing(sparks_into(rig, shape), lake, shape.rows, settle, whole=False),
    }
    yield from rows_of(CLAIMS, contenders, runs)


def sparks_into(rig: Rig, shape: Shape) -> Start:
    options = {**rig.kafka_options(shape), **TUNED}

    def start(table: str, checkpoint: Path) -> StreamingQuery:
        rows = rig.spark.readStream.format("kafka").options(**options).load().where(WHERE).selectExpr(*SELECT)
        writer = rows.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start(table)

    return start
