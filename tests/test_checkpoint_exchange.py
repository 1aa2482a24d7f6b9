"""A checkpoint goes from Spark's `kafka` source to `tiered_stream` and back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.reading import BY_STEP, FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS, options, records, stream
from tests.stack.processes import wait_until
from tests.stack.produce import RawProducer
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, wait_until_tiered

IN_SEGMENT = 50


class Producer:
    """Fills a topic of two partitions, a segment of its own for each batch, until it is stopped."""

    def __init__(self, stack: TieredStack, topic: str) -> None:
        self._stack = stack
        self._topic = topic
        self._stopped = threading.Event()
        self.segments = 0

    def produce(self, count: int) -> None:
        with RawProducer(self._stack.broker) as producer:
            for _ in range(count):
                self._segment(producer)

    def go_on(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        with RawProducer(self._stack.broker) as producer:
            while not self._stopped.wait(0.2):
                self._segment(producer)

    def _segment(self, producer: RawProducer) -> None:
        timestamp = FIRST_TIMESTAMP_MS + self.segments * SEGMENT_STEP_MS
        for partition in (0, 1):
            producer.send(self._topic, records(IN_SEGMENT, self.segments * IN_SEGMENT, 20, timestamp), partition)
        self.segments += 1


def test_a_checkpoint_goes_to_tiered_stream_and_back_while_records_arrive(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2, config=BY_STEP)
    producer = Producer(stack, topic)
    producer.produce(20)
    wait_until_tiered(stack.broker, topic)
    given = options(stack, topic, {"maxOffsetsPerTrigger": "400"})
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def start(source: str) -> StreamingQuery:
        writer = stream(spark, given, source).writeStream.format("delta")
        return writer.option("checkpointLocation", str(checkpoint)).start(str(table))

    thread = producer.go_on()
    commits: list[int] = []
    for source in ("kafka", "tiered_stream", "kafka", "tiered_stream"):
        query = start(source)
        wait_until(_two_more(checkpoint, commits), f"batches of {source}", pause=0.05)
        if source == "tiered_stream" and len(commits) > 3:
            producer.stop()
            thread.join()
            query.processAllAvailable()
        query.stop()
        commits.append(_committed(checkpoint))

    landed = spark.read.format("delta").load(str(table)).select("partition", "offset", "key").collect()
    expected = [(p, n, b"%d" % n) for p in (0, 1) for n in range(producer.segments * IN_SEGMENT)]
    assert sorted((row[0], row[1], bytes(row[2])) for row in landed) == expected


def _committed(checkpoint: Path) -> int:
    return max((int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def _two_more(checkpoint: Path, commits: list[int]) -> Callable[[], bool]:
    before = commits[-1] if commits else -1
    return lambda: _committed(checkpoint) >= before + 2
