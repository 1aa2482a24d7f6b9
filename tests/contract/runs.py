"""Runs of streaming queries, and the rows that they should land."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession

from tests.reading import batch, stream
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack

Found = list[tuple[int, int]]


class Runs:
    """Runs of one streaming query up to what is there, one after the other on one checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.batches: list[Found] = []
        """Of the last run: the rows of each micro-batch that had some, by partition and offset."""

    def land(self, given: Mapping[str, str], after_batch: Callable[[DataFrame], None] | None = None) -> Found:
        """The rows of a run with `Trigger.AvailableNow`."""
        self.batches = []

        def sink(frame: DataFrame, batch_id: int) -> None:
            rows = sorted((row[0], row[1]) for row in frame.select("partition", "offset").collect())
            self.batches += [rows] if rows else []
            if after_batch is not None:
                after_batch(frame)

        writer = stream(self._spark, given).writeStream.foreachBatch(sink)
        writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start().awaitTermination()
        return sorted(row for rows in self.batches for row in rows)


def found(spark: SparkSession, given: Mapping[str, str], source: str = "tiered_stream") -> Found:
    """Return the rows of a batch query, in order."""
    return sorted((row[0], row[1]) for row in batch(spark, given, source).select("partition", "offset").collect())


def rows(*ranges: range) -> Found:
    """Return these rows of partition 0, of partition 1, and so on."""
    return [(partition, offset) for partition, offsets in enumerate(ranges) for offset in offsets]


def by_partition(topic: str, *numbers: int) -> str:
    return orjson.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}}).decode()


def at(*times: int) -> list[Record]:
    return [Record(value=b"v", timestamp_ms=time) for time in times]


def delete_before(stack: TieredStack, topic: str, offset: int, partition: int = 0) -> None:
    with stack.broker.admin() as admin:
        admin.delete_records({TopicPartition(topic, partition): offset})
