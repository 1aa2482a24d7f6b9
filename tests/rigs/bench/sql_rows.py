"""How fast a filter, casts and renames land: by SQL in the direct lane, beside the lane without SQL, and beside Spark's
own `kafka` source with the same SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import DIRECT, KAFKA_TUNED, kafka_lands, landing, lane_into
from tests.rigs.bench.rig import TUNED, Rig
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
    options = {**rig.kafka_options(shape), **TUNED}
    by_spark = kafka_lands(rig.spark, options, select=lambda rows: rows.where(WHERE).selectExpr(*SELECT))
    contenders: dict[str, Contender] = {
        WITH_SQL: landing(lane_into(rig, shape, DIRECT, sql), lake, shape.rows, settle, whole=False),
        DIRECT: landing(lane_into(rig, shape, DIRECT), lake, shape.rows, settle),
        KAFKA_TUNED: landing(by_spark, lake, shape.rows, settle, whole=False),
    }
    yield from rows_of(CLAIMS, contenders, runs)
