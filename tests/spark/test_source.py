"""The batch source on the real stack: every row as a plain consumer returns it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.protocol.consumer.offsets import OffsetSpec
from kafka.structs import OffsetAndMetadata
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.reading import batch, build_segments, options, records, rows, split_rows
from tests.rigs.stack.batches import CODECS
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import alter_topic, create_tiered_topic, offsets, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tests.tier.topics import topic_options

KINDS = [
    Record(b"key", b"value"),
    Record(None, None),
    Record(b"", b""),
    Record(None, b"no key"),
    Record(b"no value", None),
    Record(b"k", b"one header", (("name", b"text"),)),
    Record(b"k", b"the same name twice", (("name", b"1"), ("other", b""), ("name", b"2"))),
    Record(b"k", b"a header without a value", (("nothing", None), ("", b"no name"))),
    Record("schlüssel".encode(), bytes(range(256)) * 20, (("größe", b"\x00\xff"),), 1_234_567_890_123),
    Record(b"k", b"the epoch", (), 0),
]


def _produce_all_kinds(stack: TieredStack, topic: str) -> None:
    with RawProducer(stack.broker) as producer, TransactionalProducer(stack.broker, f"of {topic}") as transaction:
        for number, codec in enumerate(CODECS):
            for partition in (0, 1):
                producer.send(topic, KINDS, partition, codec)
                producer.send(topic, records(500, 1000 * number), partition, codec)
            transaction.send(topic, [Record(b"in transaction", codec.encode())], 0, codec)
            if number % 2:
                transaction.abort()
            else:
                transaction.commit()


def commit_group_offset(stack: TieredStack, topic: str) -> None:
    """So that `__consumer_offsets` is there, and holds a record."""
    consumer = KafkaConsumer(bootstrap_servers=stack.bootstrap_servers, group_id="somebody")
    partition = KafkaTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(1, "", -1)})
    consumer.close()


@pytest.fixture(scope="module")
def all_kinds(stack: TieredStack) -> str:
    """A topic with records of every kind in every codec: a tiered half, and another that is not tiered."""
    topic = "every-kind"
    create_tiered_topic(stack.broker, topic, partitions=2, config={"message.timestamp.after.max.ms": str(2**62)})
    _produce_all_kinds(stack, topic)
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic)
    alter_topic(stack.broker, topic, {"message.timestamp.type": "LogAppendTime"})
    _produce_all_kinds(stack, topic)
    return topic


@pytest.fixture(scope="module")
def large_segment(stack: TieredStack) -> str:
    return tier_large_segment(stack)


def tier_large_segment(stack: TieredStack) -> str:
    """Make a topic with one tiered segment of 4 MiB in 400 batches, and one record after it."""
    topic = "large-segment"
    create_tiered_topic(stack.broker, topic, config={"segment.bytes": str(64 << 20)})
    with RawProducer(stack.broker) as producer:
        producer.send_all(topic, records(LARGE, value_bytes=180), batch_records=50)
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic)
    return topic


LARGE = 20_000


@pytest.mark.contract("2.46")
def test_rows_are_those_of_a_consumer_in_every_field(stack: TieredStack, spark: SparkSession, all_kinds: str) -> None:
    read = rows(batch(spark, options(stack, all_kinds)))
    consumed = read_topic(stack.broker, all_kinds)
    assert sorted(read) == consumed
    assert {row.timestamp_type for row in consumed} == {0, 1}
    assert len(consumed) == 2 * 2 * len(CODECS) * (len(KINDS) + 500) + 2 * 3 + 2


@pytest.mark.contract("1.2 includeHeaders", "1.3 columns", "2.60")
def test_headers_are_null_where_a_record_has_none(stack: TieredStack, spark: SparkSession, all_kinds: str) -> None:
    given = options(stack, all_kinds, {"kafka.isolation.level": "read_committed"})
    columns = ("partition", "offset", "headers is null", "size(headers)")
    ours = batch(spark, given).selectExpr(*columns).collect()
    assert {(is_null, size) for _, _, is_null, size in ours} == {(True, None), (False, 1), (False, 2), (False, 3)}
    assert sorted(ours) == sorted(batch(spark, given, "kafka").selectExpr(*columns).collect())


@pytest.mark.contract("1.2 includeHeaders", "1.3 columns", "2.18")
@pytest.mark.parametrize("headers", ["true", "false"])
def test_the_schema_is_that_of_sparks_own_source(
    stack: TieredStack, spark: SparkSession, all_kinds: str, headers: str
) -> None:
    given = options(stack, all_kinds, {"includeHeaders": headers})
    ours, theirs = batch(spark, given).schema, batch(spark, given, "kafka").schema
    assert isinstance(ours, StructType)
    assert ours == theirs
    assert ("headers" in ours.names) == (headers == "true")


@pytest.mark.contract("1.2 kafka.isolation.level", "2.18")
def test_without_headers_rows_are_those_of_sparks_own_source(
    stack: TieredStack, spark: SparkSession, all_kinds: str
) -> None:
    given = options(stack, all_kinds, {"includeHeaders": "false", "kafka.isolation.level": "read_uncommitted"})
    ours, theirs = batch(spark, given).collect(), batch(spark, given, "kafka").collect()
    assert sorted(ours, key=_position) == sorted(theirs, key=_position)
    assert len(ours) == 2 * 2 * len(CODECS) * (len(KINDS) + 500) + 2 * 5 + 2


def _position(row: object) -> tuple[int, int]:
    return row["partition"], row["offset"]  # type: ignore[index]


@pytest.mark.contract("1.2 subscribe")
@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_nothing_is_read_of_internal_topics_as_with_sparks_own_source(
    stack: TieredStack, spark: SparkSession, all_kinds: str, topic: str, isolation: str
) -> None:
    commit_group_offset(stack, all_kinds)
    assert sum(offsets(stack.broker, topic, OffsetSpec.LATEST).values()) > 0
    for subscription in (
        {"subscribe": topic},
        {"subscribe": "", "assign": orjson.dumps({topic: [*range(50)]}).decode()},
    ):
        given = options(stack, topic, {"kafka.isolation.level": isolation, **subscription})
        given = {name: value for name, value in given.items() if value}
        assert batch(spark, given, "kafka").count() == batch(spark, given).count() == 0
    given = options(stack, f"{topic},{all_kinds}", {"kafka.isolation.level": isolation})
    assert {row[0] for row in batch(spark, given).select("topic").distinct().collect()} == {all_kinds}


@pytest.mark.contract("1.7 fewest pieces")
def test_hundreds_of_small_segments_share_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    count = build_segments(tmp_path, "small-segments", [4] * 120, partitions=2)
    tasks = split_rows(batch(spark, topic_options(tmp_path, "small-segments")))
    assert sorted(row for task in tasks for row in task) == [(p, n) for p in (0, 1) for n in range(count)]
    assert len(tasks) == 2


def test_a_large_segment_is_shared_by_tasks_each_in_order(
    stack: TieredStack, spark: SparkSession, large_segment: str
) -> None:
    tasks = split_rows(batch(spark, options(stack, large_segment, {"remote.split.bytes": "512k"})))
    assert 6 <= len(tasks) <= 10 and tasks[-1] == [(0, LARGE)]  # a task of its own has what is not tiered
    assert [row for task in tasks for row in task] == [(0, offset) for offset in range(LARGE + 1)]


@pytest.mark.contract(
    "1.2 minPartitions", "1.2 maxRecordsPerPartition", "1.7 minPartitions", "1.7 maxRecordsPerPartition",
    "1.7 earliest and latest of a batch query",
)  # fmt: skip
def test_min_partitions_and_max_records_per_partition_are_kept(
    stack: TieredStack, spark: SparkSession, large_segment: str
) -> None:
    whole = [(0, offset) for offset in range(LARGE + 1)]
    many = split_rows(batch(spark, options(stack, large_segment, {"minPartitions": "7"})))
    small = split_rows(batch(spark, options(stack, large_segment, {"maxRecordsPerPartition": "3000"})))
    assert len(many) >= 7
    assert max(map(len, small)) <= 3000
    assert [row for task in many for row in task] == [row for task in small for row in task] == whole


def test_no_tiered_byte_comes_through_the_broker(restarted_stack: TieredStack, spark: SparkSession) -> None:
    stack = restarted_stack
    large_segment = tier_large_segment(stack)
    tiered = {"endingOffsets": f'{{"{large_segment}":{{"0":{LARGE}}}}}', "remote.split.bytes": "1m"}
    consumed = read_topic(stack.broker, large_segment, ranges={0: (0, LARGE)})
    frame = batch(spark, options(stack, large_segment, tiered))
    assert frame._jdf.queryExecution().executedPlan().execute().getNumPartitions() == 3
    stack.broker.stop()
    try:
        collected = [(row.partition, row.offset, row.key, row.value) for row in frame.collect()]
    finally:
        stack.broker.start()
    assert collected == [(row.partition, row.offset, row.key, row.value) for row in consumed]
