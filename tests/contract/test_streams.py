"""Rows of the contract about streams, through Spark on the real stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.contract.runs import Runs, at, by_partition, rows
from tests.reading import fill, options, records, stream
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import add_partitions, create_tiered_topic, recreate_topic
from tests.rigs.stack.transactions import TransactionalProducer

# Where a query starts, and goes on


@pytest.mark.contract(
    "2.1", "2.2", "2.3", "2.4", "2.5", "1.4 checkpoint before options", "1.6 new partition from 0", "1.5 timestamps",
    "1.2 subscribe", "1.2 subscribePattern", "1.2 assign", "2.96",
)  # fmt: skip
@pytest.mark.parametrize("subscription", ["subscribe", "subscribePattern", "assign"])
@pytest.mark.parametrize("start", ["latest", "earliest", "offsets", "timestamps", "timestamp"])
def test_a_query_starts_where_it_is_told_and_goes_on_from_its_checkpoint(
    stack: TieredStack, runs: Runs, topic: str, subscription: str, start: str
) -> None:
    fill(stack, topic, *[at(1000, 2000, 3000)] * 2)
    starts, first = {
        "latest": ({"startingOffsets": "latest"}, (3, 3)),
        "earliest": ({"startingOffsets": "earliest"}, (0, 0)),
        "offsets": ({"startingOffsets": by_partition(topic, 1, -2)}, (1, 0)),
        "timestamps": ({"startingOffsetsByTimestamp": by_partition(topic, 2000, 2001)}, (1, 2)),
        "timestamp": ({"startingTimestamp": "2500"}, (2, 2)),
    }[start]
    named = {"subscribe": topic, "subscribePattern": topic[5:], "assign": f'{{"{topic}":[0,1]}}'}
    common = {
        name: value for name, value in options(stack, topic).items() if name not in ("subscribe", "startingOffsets")
    }
    given = {**common, subscription: named[subscription], **starts}

    assert runs.land(given) == rows(*(range(offset, 3) for offset in first))
    produce_batch(stack.broker, topic, at(4000, 5000))
    assert runs.land(given) == [(0, 3), (0, 4)]
    add_partitions(stack.broker, topic, 3)
    produce_batch(stack.broker, topic, at(6000), 2)
    elsewhere = {**common, subscription: named[subscription], "startingOffsets": "earliest"}
    assert runs.land(elsewhere) == ([] if subscription == "assign" else [(2, 0)])
    assert runs.land(given) == []


@pytest.mark.contract("2.3")
def test_each_partition_starts_where_the_map_says(stack: TieredStack, runs: Runs, topic: str) -> None:
    fill(stack, topic, *[records(4)] * 5)
    given = options(stack, topic, {"startingOffsets": by_partition(topic, -2, -1, 0, 1, 2)})
    assert runs.land(given) == rows(range(4), range(0), range(4), range(1, 4), range(2, 4))
    for partition in range(5):
        produce_batch(stack.broker, topic, records(1), partition)
    assert runs.land(given) == [(partition, 4) for partition in range(5)]


@pytest.mark.contract("2.6", "2.7", "2.9", "1.2 startingOffsetsByTimestampStrategy", "1.5 no match at the start")
@pytest.mark.parametrize("subscription", ["subscribe", "subscribePattern"])
@pytest.mark.parametrize("form", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_partition_without_late_rows_fails_or_delivers_what_comes_later(
    stack: TieredStack, runs: Runs, topic: str, subscription: str, form: str
) -> None:
    fill(stack, topic, at(1000, 2000), at(1000))
    late = "2000" if form == "startingTimestamp" else by_partition(topic, 2000, 2000)
    given = {**options(stack, topic), form: late}
    del given["subscribe"]
    given[subscription] = topic
    for strategy in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with pytest.raises(StreamingQueryException, match=f"no offset matched the starting timestamp in {topic}-1"):
            runs.land({**given, **strategy})
    assert runs.land({**given, "startingOffsetsByTimestampStrategy": "latest"}) == [(0, 1)]
    produce_batch(stack.broker, topic, at(1500), 1)
    assert runs.land(given) == [(1, 1)]


@pytest.mark.contract("2.9")
def test_a_partition_that_is_given_an_earlier_time_delivers_from_there(
    stack: TieredStack, runs: Runs, topic: str
) -> None:
    fill(stack, topic, at(1000, 2000), at(500, 1000))
    given = options(stack, topic, {"startingOffsetsByTimestamp": by_partition(topic, 2000, 1000)})
    assert runs.land(given) == [(0, 1), (1, 1)]


@pytest.mark.contract("2.51")
def test_a_checkpoint_of_a_query_without_headers_goes_on_with_them(stack: TieredStack, runs: Runs, topic: str) -> None:
    fill(stack, topic, records(3))
    assert runs.land(options(stack, topic, {"includeHeaders": "false"})) == rows(range(3))
    produce_batch(stack.broker, topic, [Record(value=b"v", headers=(("name", b"text"),))])
    columns = []
    assert runs.land(options(stack, topic), lambda frame: columns.extend(frame.columns)) == [(0, 3)]
    assert columns[-1] == "headers"


# AvailableNow


@pytest.mark.contract("2.22", "1.8 AvailableNow")
def test_15_rows_with_a_limit_of_5_are_three_batches(stack: TieredStack, runs: Runs, topic: str) -> None:
    fill(stack, topic, *[records(3)] * 5)
    assert runs.land(options(stack, topic, {"maxOffsetsPerTrigger": "5"})) == rows(*(range(3) for _ in range(5)))
    assert [len(found) for found in runs.batches] == [5, 5, 5]


@pytest.mark.contract("2.20")
def test_a_batch_that_failed_is_made_again_after_partitions_were_added(
    stack: TieredStack, runs: Runs, topic: str
) -> None:
    fill(stack, topic, records(3))
    given = options(stack, topic)

    def fail(_: DataFrame) -> None:
        raise RuntimeError("the user's own error")

    for partitions in (2, 3):
        with pytest.raises(StreamingQueryException, match="the user's own error"):
            runs.land(given, fail)
        add_partitions(stack.broker, topic, partitions)
        produce_batch(stack.broker, topic, records(2), partitions - 1)
    assert runs.land(given) == rows(range(3), range(2), range(2))


@pytest.mark.contract("2.23", "2.24", "1.8 AvailableNow checks")
@pytest.mark.parametrize(
    ("partitions", "condition"),
    [
        (1, "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"),
        (2, "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW"),
    ],
    ids=["with fewer partitions", "with fewer rows"],
)
def test_a_topic_that_is_made_again_with_less_fails_the_run(
    stack: TieredStack, runs: Runs, topic: str, partitions: int, condition: str
) -> None:
    fill(stack, topic, *[records(5)] * 2)

    def make_again(_: DataFrame) -> None:
        recreate_topic(stack.broker, topic, partitions)
        produce_batch(stack.broker, topic, records(1))

    limited = {"maxOffsetsPerTrigger": "2", "failOnDataLoss": "false", "fetchOffset.retryIntervalMs": "100"}
    with pytest.raises(StreamingQueryException, match=condition):
        runs.land(options(stack, topic, limited), make_again)


# Transactions


@pytest.mark.contract("2.43", "2.44", "2.45", "1.8 read_committed", "1.2 kafka.isolation.level")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_under_a_limit(stack: TieredStack, runs: Runs, topic: str, isolation: str) -> None:
    create_tiered_topic(stack.broker, topic)
    given = options(stack, topic, {"kafka.isolation.level": isolation, "maxOffsetsPerTrigger": "3"})
    committed = isolation == "read_committed"
    with TransactionalProducer(stack.broker, topic) as producer:
        producer.send(topic, records(5))
        assert runs.land(given) == ([] if committed else rows(range(5)))
        producer.commit()  # its marker is offset 5
        assert runs.land(given) == (rows(range(5)) if committed else [])
        producer.send(topic, records(4))
        producer.abort()  # 10
        assert runs.land(given) == ([] if committed else rows(range(6, 10)))
        producer.send(topic, records(3))
        producer.commit()  # 14
    assert runs.land(given) == rows(range(11, 14))
    assert all(len(found) <= 3 for found in runs.batches)
    assert runs.land(given) == []


# What a query does with the rows


@pytest.mark.contract("2.37")
def test_a_watermark_follows_the_timestamps(stack: TieredStack, spark: SparkSession, topic: str) -> None:
    fill(stack, topic, at(1_000, 100_000))
    counted = stream(spark, options(stack, topic)).withWatermark("timestamp", "10 seconds")
    counts = counted.groupBy("timestamp").count()
    table = topic.replace("-", "_")
    query = counts.writeStream.format("memory").queryName(table).outputMode("append").start()
    query.processAllAvailable()
    produce_batch(stack.broker, topic, at(200_000))
    query.processAllAvailable()
    marks = {progress.eventTime.get("watermark") for progress in query.recentProgress}
    query.stop()
    assert "1970-01-01T00:01:30.000Z" in marks
    spark.catalog.dropTempView(table)


@pytest.mark.contract("2.39")
def test_a_union_goes_on_when_one_of_its_streams_has_no_more(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    short, long = f"{topic}-s", f"{topic}-l"
    for name, count in ((short, 4), (long, 17)):
        fill(stack, name, records(count))
    seen: list[tuple[str, int]] = []

    def land(frame: DataFrame, batch_id: int) -> None:
        seen.extend((row[0], row[1]) for row in frame.select("topic", "offset").collect())

    both = [stream(spark, options(stack, name, {"maxOffsetsPerTrigger": "3"})) for name in (short, long)]
    writer = both[0].union(both[1]).writeStream.foreachBatch(land).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen) == [(long, n) for n in range(17)] + [(short, n) for n in range(4)]


@pytest.mark.contract("2.42")
def test_a_stream_is_joined_with_itself(stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path) -> None:
    fill(stack, topic, records(10))
    frame = stream(spark, options(stack, topic)).selectExpr("offset as here", "offset * 2 as twice")
    joined = frame.alias("a").join(frame.alias("b"), on="here").selectExpr("here")
    seen: list[int] = []

    def land(frame: DataFrame, batch_id: int) -> None:
        seen.extend(row[0] for row in frame.collect())

    writer = joined.writeStream.foreachBatch(land).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen) == list(range(10))


@pytest.mark.contract("2.47", "1.2 minPartitions")
def test_six_tasks_read_three_partitions(stack: TieredStack, runs: Runs, topic: str) -> None:
    fill(stack, topic, *[records(6)] * 3)
    tasks: list[int] = []

    def count(frame: DataFrame) -> None:
        tasks.append(frame.selectExpr("spark_partition_id()").distinct().count())

    assert runs.land(options(stack, topic, {"minPartitions": "6"}), count) == rows(range(6), range(6), range(6))
    assert tasks[0] >= 6


@pytest.mark.contract("2.21")
def test_with_asynchronous_progress_tracking_nothing_is_lost_at_a_restart(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    for name in (topic, copy):
        create_tiered_topic(stack.broker, name)
    frame = stream(spark, options(stack, topic)).select("key", "value")
    sink = {
        "kafka.bootstrap.servers": stack.bootstrap_servers,
        "topic": copy,
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "0",
    }
    for first in (0, 20):
        produce_batch(stack.broker, topic, records(20, first))
        query = frame.writeStream.format("kafka").options(**sink).start()
        query.processAllAvailable()
        query.stop()
    copied = spark.read.format("tiered_stream").options(**options(stack, copy)).load()
    assert {bytes(row[0]) for row in copied.select("key").collect()} == {b"%d" % n for n in range(40)}
