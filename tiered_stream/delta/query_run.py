"""How a query runs, wherever it writes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tiered_stream.delta.idle_workers import started_without_idle_limit
from tiered_stream.delta.query_evolution import with_named_sink

AVAILABLE_NOW = "availableNow"
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@dataclass(frozen=True)
class BoundedRun:
    """What sets a run that has an end apart from a query that goes on.

    `transaction_id` is the application transaction's in place of the query's, which a new checkpoint would change.
    """

    transaction_id: str
    replace_where: str | None = None
    """Rows to take out in the same commit; the run is then one micro-batch in the Spark lane."""
    replaced_records: str | None = None
    """The same rows by the records that they are from: a condition on Kafka's columns, for dead letters."""
    tasks: int | None = None
    """The most tasks at once; None: as many as Spark runs."""

    def limited(self, rows: DataFrame) -> DataFrame:
        """In as many partitions as tasks may run at once."""
        return rows.coalesce(self.tasks) if self.tasks else rows


@dataclass(frozen=True, slots=True)
class QueryRun:
    """How the query runs, wherever it writes."""

    checkpoint: str
    trigger: str
    name: str | None

    def configured(self, writer: DataStreamWriter) -> DataStreamWriter:
        trigger: dict[str, Any] = {"processingTime": self.trigger} if self.goes_on else {"availableNow": True}
        named = with_named_sink(writer.queryName(self.name) if self.name else writer)
        return named.option("checkpointLocation", self.checkpoint).trigger(**trigger)

    @property
    def goes_on(self) -> bool:
        """Whether it waits for what comes, rather than to end with what there is."""
        return self.trigger != AVAILABLE_NOW

    def started_interpreted(self, spark: SparkSession, writer: DataStreamWriter) -> StreamingQuery:
        """Start a query of few rows, for which Spark makes no Java code: to compile it takes a new JVM 0.6 s."""
        with started_without_idle_limit(spark):
            query = self.configured(writer).start()
        with suppress(Py4JError, TypeError):  # it is no part of Spark's interface, and can be done without
            java: Any = query._jsq
            conf = java.streamingQuery().sparkSessionForStream().conf()  # the query's own copy of the session
            for name, value in _INTERPRETED.items():
                conf.set(name, value)
        return query


def query_id_of(batch: DataFrame) -> str:
    """The id of the streaming query that has the batch."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id
    return query_id
