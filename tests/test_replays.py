"""What was planned or read once, and again after the topic changed: through Spark, with both values of failOnDataLoss.

A stream's sink fails at its first micro-batch, so that the next run reads it again; a batch query is read twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.contract.runs import Found, by_partition, delete_before, found, rows
from tests.reading import options, records, stream
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import add_partitions, create_tiered_topic, recreate_topic
from tests.rigs.stack.transactions import TransactionalProducer
from tests.spark.abilities import SEVERAL_BATCHES

ROWS = 10


@pytest.fixture(params=["true", "false"], ids=["fail", "go-on"])
def policy(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"failOnDataLoss": request.param}


@dataclass
class Query:
    """One streaming query over the topic, run after run on one checkpoint."""

    spark: SparkSession
    given: dict[str, str]
    checkpoint: Path

    def fails(self, source: str = "tiered_stream", given: Mapping[str, str] | None = None) -> None:
        """A run whose sink fails at the first micro-batch."""

        def fail(frame: DataFrame, batch_id: int) -> None:
            raise RuntimeError("the sink is out of order")

        query = self._start(source, given or {}, fail, available_now=False)
        with pytest.raises(StreamingQueryException, match="the sink is out of order"):
            query.awaitTermination()
        assert (self.checkpoint / "offsets" / "0").exists()
        assert not (self.checkpoint / "commits" / "0").exists()

    def lands(self, source: str = "tiered_stream", given: Mapping[str, str] | None = None) -> Found:
        """A run up to what is there now: (partition, offset) of its rows, in order."""
        landed: Found = []

        def land(frame: DataFrame, batch_id: int) -> None:
            landed.extend((row[0], row[1]) for row in frame.select("partition", "offset").collect())

        for _ in range(1 if SEVERAL_BATCHES.present else 3):  # the repeated one, an empty first one, and the news
            self._start(source, given or {}, land, available_now=True).awaitTermination()
        return sorted(landed)

    def _start(self, source: str, given: Mapping[str, str], sink: object, *, available_now: bool) -> StreamingQuery:
        frame = stream(self.spark, {**self.given, **given}, source)
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(self.checkpoint))  # type: ignore[arg-type]
        return (writer.trigger(availableNow=True) if available_now else writer).start()


@pytest.fixture
def query(stack: TieredStack, spark: SparkSession, topic: str, policy: dict[str, str], tmp_path: Path) -> Query:
    create_tiered_topic(stack.broker, topic, partitions=2)
    for partition in (0, 1):
        produce_batch(stack.broker, topic, records(ROWS), partition)
    return Query(spark, options(stack, topic, policy), tmp_path / "checkpoint")


def data_loss(policy: Mapping[str, str], said: str) -> pytest.RaisesExc[PySparkException] | nullcontext[None]:
    """Fails with it, or goes on."""
    return pytest.raises(PySparkException, match=said) if policy["failOnDataLoss"] == "true" else nullcontext()


# A stream's first micro-batch was planned and failed; then …


@pytest.mark.contract(
    "1.4 planned but not committed", "1.4 file of initial offsets", "1.4 checkpoint before options", "2.25"
)
@pytest.mark.parametrize("start", ["earliest", "latest", "offsets"])
def test_a_partition_was_added(stack: TieredStack, query: Query, topic: str, start: str) -> None:
    given = {"startingOffsets": by_partition(topic, 3, 0) if start == "offsets" else start}
    query.fails(given=given)
    add_partitions(stack.broker, topic, 3)
    produce_batch(stack.broker, topic, records(5), 0)
    produce_batch(stack.broker, topic, records(7), 2)
    first = {"earliest": (0, 0), "latest": (ROWS, ROWS), "offsets": (3, 0)}[start]
    assert query.lands(given=given) == rows(range(first[0], ROWS + 5), range(first[1], ROWS), range(7))
    assert query.lands(given=given) == []


@pytest.mark.contract("1.4 planned but not committed", "1.6 range below the log start", "2.98")
@pytest.mark.parametrize(("before", "after"), [(0, 6), (6, 0), (3, 6)])
def test_the_log_start_moved_before_or_after_the_batch_was_planned(
    stack: TieredStack, query: Query, topic: str, policy: dict[str, str], before: int, after: int
) -> None:
    if before:
        delete_before(stack, topic, before)
    query.fails()
    if after:
        delete_before(stack, topic, after)
    lost = rf"COULD_NOT_READ_OFFSET_RANGE.*offsets {before} to 10 .*holds 6 to"
    with data_loss(policy, lost) if after else nullcontext():
        assert query.lands() == rows(range(6, ROWS), range(ROWS))


@pytest.mark.contract("1.6 range beyond the log end")
@pytest.mark.parametrize("counts", [{0: 4}, {0: ROWS + 1, 1: ROWS + 1}])
def test_the_topic_was_made_again_and_is_shorter_or_longer(
    stack: TieredStack, query: Query, topic: str, policy: dict[str, str], counts: dict[int, int]
) -> None:
    """Unlike with Spark's `kafka` source, the checkpoint notes the topic's id, so that a longer topic is noticed."""
    query.fails()
    recreate_topic(stack.broker, topic, partitions=2)
    for partition, count in counts.items():
        produce_batch(stack.broker, topic, records(count), partition)
    with data_loss(policy, "TOPIC_RECREATED"):
        assert query.lands() == rows(*map(range, counts.values()))


def test_the_kafka_source_planned_it_into_a_transaction_that_is_open(
    stack: TieredStack, query: Query, topic: str
) -> None:
    """That source's end is the high watermark; what it planned is read when all of it is decided."""
    with TransactionalProducer(stack.broker, topic) as producer:
        producer.send(topic, [Record(value=b"v")] * 5)
        query.fails("kafka")
        with pytest.raises(StreamingQueryException, match=rf"OpenTransactionError.*up to 15 of {topic}-0"):
            query.lands()
        producer.commit()
    assert query.lands() == rows(range(ROWS + 5), range(ROWS))


def test_the_kafka_source_wrote_a_checkpoint_in_a_transaction_that_is_open(
    stack: TieredStack, query: Query, topic: str
) -> None:
    with TransactionalProducer(stack.broker, topic) as producer:
        producer.send(topic, [Record(value=b"v")] * 5)
        assert query.lands("kafka") == rows(range(ROWS + 5), range(ROWS))
        produce_batch(stack.broker, topic, records(2), 0)
        produce_batch(stack.broker, topic, records(2), 1)
        assert query.lands() == [(1, 10), (1, 11)]
        producer.commit()
    assert query.lands() == [(0, 15), (0, 16)]
    assert query.lands("kafka") == []


def test_the_kafka_source_planned_it_from_earliest(stack: TieredStack, query: Query, topic: str) -> None:
    query.fails("kafka")
    add_partitions(stack.broker, topic, 3)
    produce_batch(stack.broker, topic, records(5), 0)
    assert query.lands() == rows(range(ROWS + 5), range(ROWS))


# While a stream runs


@pytest.mark.contract("1.6 new partition from 0", "2.2")
def test_a_partition_is_added_while_a_stream_runs(
    stack: TieredStack, query: Query, topic: str, spark: SparkSession
) -> None:
    table = topic.replace("-", "_")
    writer = stream(spark, query.given).writeStream.format("memory").queryName(table)
    running = writer.option("checkpointLocation", str(query.checkpoint)).start()
    running.processAllAvailable()
    add_partitions(stack.broker, topic, 3)
    produce_batch(stack.broker, topic, records(7), 2)
    _wait_for(running, ROWS * 2 + 7, spark, table)
    running.stop()
    assert _offsets(spark, table) == rows(range(ROWS), range(ROWS), range(7))
    spark.catalog.dropTempView(table)


@pytest.mark.contract("1.6 topic made again and longer")
def test_a_topic_is_made_again_while_a_stream_runs(
    stack: TieredStack, query: Query, topic: str, spark: SparkSession, policy: dict[str, str]
) -> None:
    table = topic.replace("-", "_")
    patient = {"fetchOffset.numRetries": "100", "fetchOffset.retryIntervalMs": "100"}
    running = stream(spark, {**query.given, **patient}).writeStream.format("memory").queryName(table).start()
    running.processAllAvailable()
    recreate_topic(stack.broker, topic, partitions=2)
    for partition in (0, 1):
        produce_batch(stack.broker, topic, records(ROWS + 5), partition)
    with data_loss(policy, rf"KAFKA_DATA_LOSS\.TOPIC_RECREATED.*{topic} "):
        _wait_for(running, 2 * (ROWS + 5), spark, table)
    running.stop()
    if policy["failOnDataLoss"] == "false":
        assert _offsets(spark, table)[-5:] == [(1, ROWS + n) for n in range(5)]
    else:
        assert _offsets(spark, table) == rows(range(ROWS), range(ROWS))
    spark.catalog.dropTempView(table)


def _wait_for(running: StreamingQuery, count: int, spark: SparkSession, table: str) -> None:
    wait_until(lambda: not running.isActive or spark.table(table).count() >= count, f"{count} rows", pause=0.1)
    if error := running.exception():
        raise error


def _offsets(spark: SparkSession, table: str) -> Found:
    return sorted((row[0], row[1]) for row in spark.table(table).select("partition", "offset").collect())


# A batch query was read; then it is read again after …


@pytest.mark.contract("1.5 late binding", "2.57")
def test_a_partition_was_added_before_a_second_read(
    stack: TieredStack, spark: SparkSession, query: Query, topic: str
) -> None:
    assert found(spark, query.given) == rows(range(ROWS), range(ROWS))
    add_partitions(stack.broker, topic, 3)
    produce_batch(stack.broker, topic, records(7), 2)
    assert found(spark, query.given) == rows(range(ROWS), range(ROWS), range(7))


@pytest.mark.contract("1.6 range below the log start", "2.70")
def test_the_log_start_moved_before_a_second_read(
    stack: TieredStack, spark: SparkSession, query: Query, topic: str, policy: dict[str, str]
) -> None:
    named = {**query.given, "startingOffsets": by_partition(topic, 2, 0)}
    assert found(spark, named) == [row for row in rows(range(ROWS), range(ROWS)) if row > (0, 1)]
    delete_before(stack, topic, 6)
    assert found(spark, query.given) == rows(range(6, ROWS), range(ROWS))
    with data_loss(policy, "COULD_NOT_READ_OFFSET_RANGE.*offsets 2 to 10"):
        assert found(spark, named) == rows(range(6, ROWS), range(ROWS))


@pytest.mark.contract("1.6 range beyond the last stable offset")
def test_a_transaction_is_open_at_a_second_read(
    stack: TieredStack, spark: SparkSession, query: Query, topic: str
) -> None:
    assert found(spark, query.given) == rows(range(ROWS), range(ROWS))
    into_it = {**query.given, "endingOffsets": by_partition(topic, 15, 10), "failOnDataLoss": "true"}
    with TransactionalProducer(stack.broker, topic) as producer:
        producer.send(topic, [Record(value=b"v")] * 5)
        assert found(spark, query.given) == rows(range(ROWS), range(ROWS))
        with pytest.raises(PySparkException, match=rf"OpenTransactionError.*up to 15 of {topic}-0"):
            found(spark, into_it)
        assert found(spark, {**into_it, "failOnDataLoss": "false"}) == rows(range(ROWS), range(ROWS))
        producer.commit()
    assert found(spark, into_it) == rows(range(ROWS + 5), range(ROWS))


def test_the_topic_was_made_again_before_a_second_read(
    stack: TieredStack, spark: SparkSession, query: Query, topic: str
) -> None:
    assert found(spark, query.given) == rows(range(ROWS), range(ROWS))
    recreate_topic(stack.broker, topic, partitions=3)
    produce_batch(stack.broker, topic, records(4), 0)
    produce_batch(stack.broker, topic, records(6), 2)
    assert found(spark, query.given) == rows(range(4), range(0), range(6))
