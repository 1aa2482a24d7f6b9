"""How a query runs, wherever it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

AVAILABLE_NOW = "availableNow"


@dataclass(frozen=True)
class BoundedRun:
    """What sets a run that has an end apart from a query that goes on.

    `transaction_id` is the application transaction's in place of the query's, which a new checkpoint would change.
    """

    transaction_id: str
    replace_where: str | None = None
    """Rows to take out in the same commit; the run is then one micro-batch in the Spark lane."""
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
        trigger: dict[str, Any] = (
            {"availableNow": True} if self.trigger == AVAILABLE_NOW else {"processingTime": self.trigger}
        )
        named = writer.queryName(self.name) if self.name else writer
        return named.option("checkpointLocation", self.checkpoint).trigger(**trigger)


def query_id_of(batch: DataFrame) -> str:
    """The id of the streaming query that has the batch."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id
    return query_id
