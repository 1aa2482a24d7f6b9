"""Batches that Spark counts as done and the table does not have: which offsets they were, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tiered_stream.errors import TableError

log = logging.getLogger(__name__)

_HEADER_LINES = 2
"""Of a file of Spark's offset log: the format's version, and the batch's settings (Spark: `OffsetSeqLog`)."""


def on_gap(spark: SparkSession, checkpoint: str, table: str, *, fail: bool) -> Callable[[int | None, int], None]:
    """For `TableCommits`: fail, or say it in the log and go on, as `failOnDataLoss` wants it."""

    def found(last: int | None, done: int) -> None:
        first = 0 if last is None else last + 1
        batches = f"batch {done}" if first == done else f"batches {first} to {done}"
        start = "the query's start" if last is None else _offsets(spark, checkpoint, last)
        said = (
            f"the table {table} does not have {batches} of the query, which its checkpoint {checkpoint} counts as "
            f"done: offsets from {start} to {_offsets(spark, checkpoint, done)}. Either another writer has overwritten "
            "the commit, or this is not the table that the query has written to so far"
        )
        if fail:
            raise TableError(
                f"{said}. Land these offsets by a query of their own, then set failOnDataLoss to false for one start "
                "of this one; or give it a new checkpoint, where the table is to get all records."
            )
        log.warning("%s; going on, since failOnDataLoss is false", said)

    return found


def _offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    try:
        lines = spark.read.text(f"{checkpoint}/offsets/{batch_id}").collect()
    except PySparkException:  # Spark keeps those of the last hundred batches (spark.sql.streaming.minBatchesToRetain)
        return f"the end of batch {batch_id}"
    return " ".join(line.value for line in lines[_HEADER_LINES:])
