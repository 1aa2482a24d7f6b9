"""Five ways to run very many micro-batches of a few records: how each query starts, and whether every record arrived.

The topics are an archive: segments in a folder, without a broker. A limit ends each micro-batch after one record batch,
so that a segment of 1,000 record batches lasts for as many micro-batches, and `availableNow` runs them one after the
other. The planner, the tasks, the tables and Spark's checkpoint do what they do in each micro-batch of a real query. A
broker would only add its own look-ups, and producers that have to keep pace.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_segments
from tiered_stream import land

PLAIN, DIRECT, SPARK, TABLES, LATEST = "plain", "direct", "spark", "tables", "latest"
WAYS = (PLAIN, DIRECT, SPARK, TABLES, LATEST)
TITLES = {
    PLAIN: "plain source, into Spark's noop sink",
    DIRECT: "direct lane",
    SPARK: "Spark lane",
    TABLES: "many tables with dead letters",
    LATEST: "latest state",
}
RECORDS = 3
"""Records of each topic in a micro-batch; a record batch has as many."""
SEGMENT_BATCHES = 1000
TOPICS = 4
"""Topics, and so tables, of the way `tables`; the other ways have one topic."""
KEYS = 100
"""Keys of the way `latest`: rows of its table."""
_MALFORMED = 3
"""In the way `tables`, one record in this number is a dead letter."""
_COMPACTED = 50
SHORT_RETENTION = {
    f"ingest.tableProperty.delta.{name}": "interval 1 minutes"
    for name in ("logRetentionDuration", "deletedFileRetentionDuration")
}
"""Delta keeps versions for 30 days and removed files for 7. In a soak, a minute is as many micro-batches as a day."""
_ARRIVED = "arrived"


@dataclass(frozen=True)
class Way:
    """One way, whose query has `batches` micro-batches and everything in `folder`."""

    name: str
    folder: str
    batches: int

    @property
    def topics(self) -> list[str]:
        return [f"soak-{number}" for number in range(TOPICS if self.name == TABLES else 1)]

    @property
    def records(self) -> int:
        """Records of each topic."""
        return self.batches * RECORDS

    @property
    def lake(self) -> Path:
        return Path(self.folder, "lake")

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder, "checkpoint")

    @property
    def dead_letters(self) -> Path:
        return self.lake / "dead"

    def tables(self) -> list[Path]:
        """The tables that there are, dead letters included."""
        return sorted(log.parent for log in self.lake.glob("*/_delta_log"))

    def write_topics(self) -> None:
        segment = SEGMENT_BATCHES * RECORDS
        for topic in self.topics:
            segments = [
                [self._record(number) for number in range(first, min(first + segment, self.records))]
                for first in range(0, self.records, segment)
            ]
            write_segments(self._bucket, topic, [segments], batch_records=RECORDS)

    def start(self, spark: SparkSession, arrivals: Arrivals) -> StreamingQuery:
        """Start the query. `arrivals` is told of the plain source's records, which land nowhere."""
        limit = {"maxOffsetsPerTrigger": str(RECORDS * len(self.topics)), "remote.segment.aligned.ends": "false"}
        options = topic_options(self._bucket, ",".join(self.topics), limit)
        if self.name != PLAIN:
            table = f"{self.lake}/{{topic}}" if self.name == TABLES else f"{self.lake}/table"
            lane = {DIRECT: "direct", SPARK: "spark"}.get(self.name, "auto")
            given = {**options, **self._settings()}
            return land(spark, options=given, table=table, checkpoint=str(self.checkpoint), lane=lane)
        spark.streams.addListener(arrivals)
        rows = spark.readStream.format("tiered_stream").options(**options).load()
        counted = rows.observe(
            _ARRIVED, sql.count(sql.lit(1)).alias("rows"), sql.min("offset").alias("first"),
            sql.max("offset").alias("last"),
        )  # fmt: skip
        sink = counted.writeStream.format("noop").option("checkpointLocation", str(self.checkpoint))
        return sink.trigger(availableNow=True).start()

    def check(self, arrivals: Arrivals) -> str:
        """Return what arrived, in words.

        Raises:
            AssertionError: a record is missing, or arrived twice.
        """
        if self.name == PLAIN:
            assert arrivals.next_offset == self.records and not arrivals.faults, arrivals
            return f"{self.records:,} records arrived once"
        if self.name == LATEST:
            return check_latest(self.lake / "table", self.records)
        if self.name != TABLES:
            check_offsets(_offsets(self.lake / "table"), range(self.records))
            return f"{self.records:,} records arrived once"
        dead = _offsets(self.dead_letters, "topic")
        for topic in self.topics:
            letters = dead.filter(pc.equal(dead["topic"], topic))
            check_offsets(letters, range(0, self.records, _MALFORMED))
            rows = [offset for offset in range(self.records) if offset % _MALFORMED]
            check_offsets(_offsets(self.lake / topic), rows)
        return f"{self.records * len(self.topics):,} records arrived once, {len(dead):,} of them as dead letters"

    @property
    def _bucket(self) -> Path:
        return Path(self.folder, "bucket")

    def _record(self, number: int) -> Record:
        if self.name == LATEST:
            return Record(f"{number % KEYS:05}".encode(), str(number).encode())
        if self.name == TABLES:
            return Record(None, b"{" if number % _MALFORMED == 0 else json.dumps({"id": number}).encode())
        return Record(f"{number % KEYS:05}".encode(), f"{number}".ljust(100, ".").encode())

    def _settings(self) -> dict[str, str]:
        settings = {**SHORT_RETENTION, "ingest.compactEvery": str(_COMPACTED)}
        if self.name == TABLES:
            return settings | {
                "ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.onDecodeError": "deadLetter",
                "ingest.deadLetterTable": str(self.dead_letters),
            }  # fmt: skip
        if self.name == LATEST:
            return settings | {
                "ingest.mode": "upsert", "ingest.keys": "key", "ingest.key.format": "string",
                "ingest.value.format": "string",
            }  # fmt: skip
        return settings


class Arrivals(StreamingQueryListener):
    """Listener that checks that the micro-batches of one partition have each offset once, in order."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.faults: list[str] = []

    def __repr__(self) -> str:
        return f"next offset {self.next_offset}, faults {self.faults[:10]}"

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        counted = event.progress.observedMetrics.get(_ARRIVED)
        if counted is not None and counted["rows"]:
            self.add(counted["rows"], counted["first"], counted["last"])

    def add(self, rows: int, first: int, last: int) -> None:
        if (first, last) != (self.next_offset, self.next_offset + rows - 1):
            self.faults.append(f"{rows} rows from {first} to {last} in place of {self.next_offset}")
        self.next_offset = last + 1


def _offsets(table: Path, *more: str) -> pa.Table:
    return DeltaTable(table).to_pyarrow_dataset().to_table(columns=["offset", *more])


def check_offsets(rows: pa.Table, wanted: range | list[int]) -> None:
    """Raise AssertionError unless the rows have exactly the wanted offsets, each once."""
    found = sorted(rows["offset"].to_pylist())
    assert found == list(wanted), f"{len(found):,} rows, of which {len(set(found)):,} differ, for {len(wanted):,}"


def check_latest(table: Path, records: int) -> str:
    """Raise AssertionError unless the table has the last record of each key; return what it has, in words."""
    columns = ["key", "value", "offset"]
    rows = DeltaTable(table).to_pyarrow_table(columns=columns).to_pylist()
    found = sorted(tuple(row[name] for name in columns) for row in rows)
    last = {f"{number % KEYS:05}": number for number in range(max(0, records - KEYS), records)}
    assert found == sorted((key, str(number), number) for key, number in last.items()), found[:3]
    return f"{records:,} records became the last rows of {len(last)} keys"
