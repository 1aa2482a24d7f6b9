"""Consumer groups, and where queries start, on the real stack: lag tools see a query, and a query takes over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from pyspark.sql import SparkSession

from tests.reading import batch, fill, options, records, rows, run_available_now, stream
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.tools import GROUPS, run_tool
from tests.spark.abilities import LAST_COMMIT
from tiered_stream.delta.landing.land import land

COMMIT = "kafka.consumer.commit.groupid"


def lags(stack: TieredStack, group: str) -> dict[int, tuple[int, int]]:
    """By partition the committed offset and the lag, as `kafka-consumer-groups --describe` prints them."""
    printed = run_tool(GROUPS, ["--bootstrap-server", stack.bootstrap_servers, "--describe", "--group", group])
    lines = [line.split() for line in printed.splitlines() if line.startswith(group)]
    return {int(partition): (int(offset), int(lag)) for _, _, partition, offset, _, lag, *_ in lines}


@pytest.fixture
def two_partitions(stack: TieredStack, topic: str) -> str:
    fill(stack, topic, records(10), records(4))
    return topic


@LAST_COMMIT.needed
def test_kafka_consumer_groups_shows_the_lag_of_a_query(
    stack: TieredStack, spark: SparkSession, two_partitions: str, tmp_path: Path
) -> None:
    frame = stream(spark, options(stack, two_partitions, {COMMIT: "of-the-query"}))
    run_available_now(frame, tmp_path / "table", tmp_path / "checkpoint")
    produce_batch(stack.broker, two_partitions, records(3), partition=1)

    assert lags(stack, "of-the-query") == {0: (10, 0), 1: (4, 3)}


@LAST_COMMIT.needed
def test_the_direct_lane_commits_too(
    stack: TieredStack, spark: SparkSession, two_partitions: str, tmp_path: Path
) -> None:
    given = options(stack, two_partitions, {COMMIT: "of-the-direct-lane"})
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    land(spark, options=given, table=table, checkpoint=checkpoint, lane="direct").awaitTermination()

    assert lags(stack, "of-the-direct-lane") == {0: (10, 0), 1: (4, 0)}


def test_a_query_that_goes_on_commits_after_each_batch(
    stack: TieredStack, spark: SparkSession, two_partitions: str, name: str
) -> None:
    frame = stream(spark, options(stack, two_partitions, {COMMIT: "of-a-running-query"}))
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        wait_until(lambda: lags(stack, "of-a-running-query") == {0: (10, 0), 1: (4, 0)}, "the first batch's offsets")
        produce_batch(stack.broker, two_partitions, records(5))
        query.processAllAvailable()
        wait_until(lambda: lags(stack, "of-a-running-query") == {0: (15, 0), 1: (4, 0)}, "the next batch's offsets")
    finally:
        query.stop()


def consume(stack: TieredStack, topic: str, group: str, count: int) -> None:
    """Let a plain consumer read so many records and commit how far it is."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=stack.bootstrap_servers, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, max_poll_records=count,
    )  # fmt: skip
    try:
        read = 0
        while read < count:
            read += sum(map(len, consumer.poll(1000, max_records=count - read).values()))
        consumer.commit()
    finally:
        consumer.close(autocommit=False)


def test_a_query_takes_over_where_a_plain_consumer_has_stopped(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    fill(stack, topic, records(10))
    consume(stack, topic, "plain", 6)
    given = options(stack, topic, {"startingOffsets": "group:plain"})

    assert sorted(row.offset for row in rows(batch(spark, given))) == [6, 7, 8, 9]

    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    run_available_now(stream(spark, given), table, checkpoint)
    produce_batch(stack.broker, topic, records(2))
    run_available_now(stream(spark, given), table, checkpoint)
    landed = spark.read.format("delta").load(str(table)).select("offset").collect()
    assert sorted(row.offset for row in landed) == list(range(6, 12))


def test_a_group_that_has_committed_nothing_is_an_error_that_names_the_partition(
    stack: TieredStack, spark: SparkSession, two_partitions: str
) -> None:
    given = options(stack, two_partitions, {"startingOffsets": "group:nobody"})
    with pytest.raises(Exception, match=f"'nobody' .*{two_partitions}-0, {two_partitions}-1"):
        rows(batch(spark, given))
    given["startingOffsetsByGroupStrategy"] = "earliest"
    assert len(rows(batch(spark, given))) == 14


def test_words_by_topic_and_relative_times_choose_the_start_and_the_end(
    stack: TieredStack, spark: SparkSession, topic: str
) -> None:
    old, new = f"{topic}-old", f"{topic}-new"
    for each in (old, new):
        fill(stack, each, records(3))  # of 2023
        produce_batch(stack.broker, each, records(2, first=3, timestamp_ms=time.time_ns() // 1_000_000))

    def offsets(**given: str) -> list[tuple[str, int]]:
        found = batch(spark, {**options(stack, f"{old},{new}"), **given}).select("topic", "offset").collect()
        return sorted((row.topic, row.offset) for row in found)

    everything = [(each, offset) for each in (new, old) for offset in range(5)]
    words = f'{{"{old}":"earliest","{new}":{{"0":4}}}}'
    assert offsets(startingOffsets=words) == [(new, 4), *((old, offset) for offset in range(5))]
    assert offsets(startingTimestamp="-7d") == [(each, offset) for each in (new, old) for offset in (3, 4)]
    assert offsets(startingOffsets="earliest", endingTimestamp="-7d") == [
        (each, offset) for each in (new, old) for offset in range(3)
    ]
    assert offsets(
        startingTimestamp="2023-01-01T00:00:00Z", endingOffsets=f'{{"{old}":"latest","{new}":"latest"}}'
    ) == (everything)
