"""A session that reaches a cloud's storage by its Hadoop connector: its delta-spark commits what both lanes write.

`python -m tests.delta.connector_driver FOLDER`; FOLDER/session.json has jar groups, Spark's settings, job settings, and
the URI below which tables are. What it found is in FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tiered_stream
from tests.delta.archive import FIRST_MS, LONG, ODD, options
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import SHORT_LIVED, spark_session
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.redrive.job_dead_letters import DeadLetterFilter
from tiered_stream.delta.redrive.redrive_run import redrive

JSON = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.onDecodeError": "deadLetter"}


@dataclass
class Tables:
    """Tables below `root`, and jobs with the settings `given` that land in them."""

    spark: SparkSession
    folder: Path
    root: str
    given: Mapping[str, str]

    def start(self, table: str, lane: str, topics: str = ODD) -> StreamingQuery:
        return tiered_stream.land(
            self.spark, options=options(topics, self.given), table=f"{self.root}/{table}",
            checkpoint=f"{self.folder}/{table}-{topics}", lane=lane,
        )  # fmt: skip

    def equal(self, table: str, topics: str = ODD) -> bool:
        given = options(topics, self.given)
        return tiered_stream.verify(self.spark, options=given, table=f"{self.root}/{table}").equal

    def engines(self, table: str) -> list[str]:
        """Programs that have committed to the table."""
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.root}/{table}`").collect()
        return sorted({row.engineInfo.split("/")[0] for row in history})

    def replaced(self) -> dict[str, Any]:
        self.start("replaced", "direct", LONG).awaitTermination()
        name = f"{self.root}/replaced"
        self.spark.sql(f"UPDATE delta.`{name}` SET value = CAST('wrong' AS BINARY) WHERE offset BETWEEN 100 AND 200")
        found = {"before": self.equal("replaced", LONG)}
        report = tiered_stream.replay(
            self.spark, options=options(LONG, self.given), into=name, replace=True, from_time=str(FIRST_MS + 50),
            to_time=str(FIRST_MS + 300), checkpoint=f"{self.folder}/replay",
        )  # fmt: skip
        return found | {"records": report.records, "after": self.equal("replaced", LONG)}

    def redriven(self) -> dict[str, Any]:
        """Ten values are set aside by a constraint that is then dropped, and one that is no JSON."""
        bucket, name, dead = self.folder / "topic", f"{self.root}/redriven", f"{self.root}/dead"
        values = [b'{"id": %d}' % number for number in range(20)]
        write_topic(bucket, "orders", [[Record(None, value) for value in (*values, b"garbage")]])
        self.spark.sql(f"CREATE TABLE delta.`{name}` (id BIGINT, topic STRING, offset BIGINT) USING delta")
        self.spark.sql(f"ALTER TABLE delta.`{name}` ADD CONSTRAINT small CHECK (id < 10)")
        own = {**self.given, **JSON, "ingest.kafkaColumns": "topic, offset", "ingest.deadLetterTable": dead}
        given = topic_options(bucket, "orders", own)
        query = tiered_stream.land(
            self.spark, options=given, table=name, checkpoint=f"{self.folder}/redriven", lane="direct"
        )
        query.awaitTermination()
        self.spark.sql(f"ALTER TABLE delta.`{name}` DROP CONSTRAINT small")
        report = redrive(self.spark, given, name, DeadLetterFilter())
        rows = self.spark.read.format("delta").load(name).select("id").collect()
        left = self.spark.read.format("delta").load(dead).where("value IS NOT NULL").collect()
        return {"ids": sorted(row.id for row in rows), "left": [bytes(row.value).decode() for row in left],
                "report": str(report)}  # fmt: skip


def main(folder: Path) -> None:
    given = json.loads((folder / "session.json").read_text())
    spark = spark_session("connector", ("delta", *given["groups"]), {**given["spark"], **SHORT_LIVED})
    tables = Tables(spark, folder, given["root"], given["job"])
    for lane in ("direct", "spark"):
        tables.start(lane, lane).awaitTermination()
    first, second = ODD.split(",")
    for writer in (tables.start("both", "direct", first), tables.start("both", "spark", second)):
        writer.awaitTermination()
    found = {
        "equal": {name: tables.equal(name) for name in ("direct", "spark", "both")},
        "engines": {name: tables.engines(name) for name in ("direct", "spark", "both")},
        "replaced": tables.replaced(),
        "redriven": tables.redriven(),
    }
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
