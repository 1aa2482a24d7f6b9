"""A checkpoint goes from Spark's `kafka` source to `tiered_stream` and back."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Self

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.reading import BY_STEP, FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS, options, records, stream
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer

IN_SEGMENT = 50
PARTITIONS = (0, 1)
IN_TURN = ("kafka", "tiered_stream", "kafka", "tiered_stream", "kafka", "tiered_stream")


class Arrivals:
    """Fills a topic of two partitions, each batch in a segment of its own; inside the context, all the time.

    Then each step also begins a transaction, which the next step commits or aborts.
    """

    def __init__(self, stack: TieredStack, topic: str) -> None:
        self._producer = RawProducer(stack.broker)
        self._transaction = TransactionalProducer(stack.broker, topic)
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._segments = 0

    def produce(self, count: int) -> None:
        for _ in range(count):
            for partition in PARTITIONS:
                self._producer.send(self._topic, self._records(), partition)
            self._segments += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._transaction.close()
        self._producer.close()

    def _records(self) -> list[Record]:
        timestamp = FIRST_TIMESTAMP_MS + self._segments * SEGMENT_STEP_MS
        return records(IN_SEGMENT, self._segments * IN_SEGMENT, timestamp_ms=timestamp)

    def _run(self) -> None:
        for commits in itertools.cycle((True, False)):
            for partition in PARTITIONS:
                self._transaction.send(self._topic, self._records(), partition)
            self.produce(1)
            stopped = self._stopped.wait(1.0)
            (self._transaction.commit if commits else self._transaction.abort)()
            if stopped:
                return


@pytest.mark.contract("1.4 checkpoint before options", "1.4 offset JSON")
def test_a_checkpoint_is_taken_over_and_given_back_while_records_and_transactions_arrive(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """Each way once with a micro-batch that is planned and not committed."""
    create_tiered_topic(stack.broker, topic, partitions=len(PARTITIONS), config=BY_STEP)
    arrivals = Arrivals(stack, topic)
    arrivals.produce(30)
    wait_until_tiered(stack.broker, topic)
    given = {**options(stack, topic), "kafka.isolation.level": "read_committed"}
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def start(source: str, limit: str = "600") -> StreamingQuery:
        writer = stream(spark, {**given, "maxOffsetsPerTrigger": limit}, source).writeStream.format("delta")
        return writer.option("checkpointLocation", str(checkpoint)).start(str(table))

    def plan_in_vain(source: str) -> None:
        rows = stream(spark, {**given, "maxOffsetsPerTrigger": "600"}, source)
        writer = rows.writeStream.foreachBatch(_refuse).option("checkpointLocation", str(checkpoint))
        with pytest.raises(StreamingQueryException, match="the sink refuses"):
            writer.start().awaitTermination()

    with arrivals:
        for turn, source in enumerate(IN_TURN):
            wanted = _last(checkpoint / "commits") + 2
            query = start(source)
            if _ends_by_fault_of_spark(query, checkpoint, wanted):
                query = start(source)
            _wait_for_batch(query, checkpoint, wanted)
            query.stop()
            if turn in (2, 3):
                plan_in_vain(source)
                assert _last(checkpoint / "offsets") == _last(checkpoint / "commits") + 1
    query = start("tiered_stream", limit="1000000")
    query.processAllAvailable()
    query.stop()

    landed = spark.read.format("delta").load(str(table)).select("partition", "offset", "key").collect()
    expected = sorted((row.partition, row.offset, row.key) for row in read_topic(stack.broker, topic))
    assert sorted((row[0], row[1], bytes(row[2])) for row in landed) == expected


def _refuse(rows: DataFrame, batch_id: int) -> None:
    raise RuntimeError("the sink refuses")


def _ends_by_fault_of_spark(query: StreamingQuery, checkpoint: Path, batch: int) -> bool:
    """Wait, and return whether Spark 4.1's own `kafka` source ended after a micro-batch that it found planned.

    It then asks for the progress of a micro-batch that it did not plan (`KafkaMicroBatchStream.metrics`), and fails
    once, after the rows were written.
    """
    _wait(query, checkpoint, batch)
    return "scala.Option.get()" in str(query.exception())


def _wait(query: StreamingQuery, checkpoint: Path, batch: int) -> None:
    wait_until(lambda: _last(checkpoint / "commits") >= batch or not query.isActive, f"batch {batch}", pause=0.05)


def _wait_for_batch(query: StreamingQuery, checkpoint: Path, batch: int) -> None:
    _wait(query, checkpoint, batch)
    if error := query.exception():
        raise error


def _last(log: Path) -> int:
    """The last micro-batch in one of a checkpoint's logs; -1: none."""
    return max((int(file.name) for file in log.glob("[0-9]*")), default=-1)
