"""A checkpoint goes from Spark's `kafka` source to `tiered_stream` and back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.reading import BY_STEP, FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS, options, records, stream
from tests.stack.processes import wait_until
from tests.stack.produce import RawProducer
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, wait_until_tiered

IN_SEGMENT = 50


class Arrivals:
    """Fills a topic of two partitions, each batch in a segment of its own; inside the context, all the time."""

    def __init__(self, stack: TieredStack, topic: str) -> None:
        self._producer = RawProducer(stack.broker)
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.segments = 0

    def produce(self, count: int) -> None:
        for _ in range(count):
            timestamp = FIRST_TIMESTAMP_MS + self.segments * SEGMENT_STEP_MS
            for partition in (0, 1):
                arriving = records(IN_SEGMENT, self.segments * IN_SEGMENT, timestamp_ms=timestamp)
                self._producer.send(self._topic, arriving, partition)
            self.segments += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        while not self._stopped.wait(1.0):
            self.produce(1)


def test_a_checkpoint_goes_to_tiered_stream_and_back_while_records_arrive(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2, config=BY_STEP)
    arrivals = Arrivals(stack, topic)
    arrivals.produce(30)
    wait_until_tiered(stack.broker, topic)
    given = options(stack, topic)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def start(source: str, limit: str = "600") -> StreamingQuery:
        writer = stream(spark, {**given, "maxOffsetsPerTrigger": limit}, source).writeStream.format("delta")
        return writer.option("checkpointLocation", str(checkpoint)).start(str(table))

    with arrivals:
        for source in ("kafka", "tiered_stream", "kafka"):
            query = start(source)
            _wait_for_batch(query, checkpoint, _committed(checkpoint) + 2)
            query.stop()
    query = start("tiered_stream", limit="1000000")
    query.processAllAvailable()
    query.stop()

    landed = spark.read.format("delta").load(str(table)).select("partition", "offset", "key").collect()
    expected = [(p, n, b"%d" % n) for p in (0, 1) for n in range(arrivals.segments * IN_SEGMENT)]
    assert sorted((row[0], row[1], bytes(row[2])) for row in landed) == expected


def _wait_for_batch(query: StreamingQuery, checkpoint: Path, batch: int) -> None:
    wait_until(lambda: _committed(checkpoint) >= batch or not query.isActive, f"batch {batch}", pause=0.05)
    if error := query.exception():
        raise error


def _committed(checkpoint: Path) -> int:
    """The last batch that the checkpoint says is done; -1: none."""
    return max((int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")), default=-1)
