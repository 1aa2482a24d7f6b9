"""A replay into a topic on the real stack: what a consumer finds there is what the source has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka.partitioner import murmur2
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.replay.topic_rows import check_topic
from tests.replay.topics import APPEND_TIME, CREATE_TIME, ReplayedTopics
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record, Row
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import alter_topic, create_tiered_topic, roll, wait_until_tiered
from tiered_stream.errors import ConfigurationError, DataLossError, UnknownTopicError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.run_replay import Replay, ReplayReport, plan_replay
from tiered_stream.replay.target_positions import Position, commit_positions, read_positions
from tiered_stream.replay.topic_settings import as_options, topic_writes
from tiered_stream.replay.topic_target import TopicTarget

pytestmark = pytest.mark.stack

ODD = "replayed-odd"
PARTITIONS = 3
TRANSACTIONAL = {"target.transactional": "true"}
LARGE_SEGMENTS = {"segment.bytes": str(8 << 20)}
ALL = "1970-01-01T00:00:00Z"


def odd_records(chance: Random, count: int) -> Iterator[Record]:
    """Nulls, empty ones, headers that come twice or have no value, timestamps that go back and forth."""
    for _ in range(count):
        key = chance.choice([None, b"", b"k%d" % chance.randrange(30), chance.randbytes(20)])
        value = chance.choice([None, b"", chance.randbytes(chance.choice([1, 50, 3000]))])
        headers = [
            (chance.choice(["", "a", "b", "käse"]), chance.choice([None, b"", b"\0", chance.randbytes(9)]))
            for _ in range(chance.choice([0, 0, 1, 4]))
        ]
        yield Record(key, value, tuple(headers), chance.choice([-1, 1, 10**12 + chance.randrange(10**9)]))


@pytest.fixture(scope="module")
def odd(stack: TieredStack) -> list[Row]:
    """The source: partly tiered; what a consumer returns of it."""
    chance = Random(14)
    create_tiered_topic(stack.broker, ODD, PARTITIONS, {"segment.bytes": str(1 << 20)})
    with RawProducer(stack.broker) as producer:
        for partition in range(PARTITIONS):
            # A record without a timestamp would lie before every time, were it the first.
            producer.send(ODD, [Record(timestamp_ms=1)], partition)
            producer.send_all(ODD, odd_records(chance, 2000), partition, codecs=("none", "gzip", "zstd"))
    roll(stack.broker, ODD)
    wait_until_tiered(stack.broker, ODD)
    with RawProducer(stack.broker) as producer:
        producer.send_all(ODD, odd_records(chance, 100), 1)
    return read_topic(stack.broker, ODD)


def planned(
    stack: TieredStack, spark: SparkSession, target: str, checkpoint: Path, *, source: str = ODD,
    settings: Mapping[str, str] = TRANSACTIONAL, name: str | None = None, **arguments: Any,
) -> Replay:  # fmt: skip
    options = {**stack.options(), "subscribe": source, **settings}
    times = {"from_time": ALL, **arguments}
    to_topic = TopicTarget(spark, target, options)
    return plan_replay(spark, options=options, target=to_topic, name=name, checkpoint=str(checkpoint), **times)


def replay(stack: TieredStack, spark: SparkSession, target: str, checkpoint: Path, **arguments: Any) -> ReplayReport:
    return planned(stack, spark, target, checkpoint, **arguments).run()


@pytest.fixture
def target(stack: TieredStack, topic: str) -> str:
    """A topic that is there, and empty."""
    create_tiered_topic(stack.broker, topic, PARTITIONS)
    return topic


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_every_record_is_there_as_it_was_in_its_partition(
    stack: TieredStack, spark: SparkSession, odd: list[Row], target: str, transactional: str, tmp_path: Path
) -> None:
    report = replay(stack, spark, target, tmp_path, settings={"target.transactional": transactional})
    check_topic(stack, target, odd)
    assert report.metrics.records == len(odd)
    assert report.metrics.remote_fetch_bytes > 0
    again = replay(stack, spark, target, tmp_path, settings={"target.transactional": transactional})
    assert again.finished_before
    check_topic(stack, target, odd)


def test_a_key_goes_where_kafkas_own_producer_puts_it(
    stack: TieredStack, spark: SparkSession, odd: list[Row], target: str, tmp_path: Path
) -> None:
    settings = {"target.partition.by": "key", "target.kafka.bootstrap.servers": stack.bootstrap_servers}
    replay(stack, spark, target, tmp_path, settings={**settings, "target.kafka.compression.type": "lz4"})
    found = read_topic(stack.broker, target)
    assert Counter(row.record() for row in found) == Counter(row.record() for row in odd)
    keyed = [row for row in found if row.key is not None]
    assert len(keyed) > 1000
    assert [row.partition for row in keyed] == [(murmur2(row.key) & 0x7FFFFFFF) % PARTITIONS for row in keyed]


def test_topics_with_transactions_and_time_ranges_into_topics_by_a_template(
    stack: TieredStack, spark: SparkSession, topics: ReplayedTopics, tmp_path: Path
) -> None:
    times = sorted(row.timestamp_ms for row in topics.rows[CREATE_TIME])
    for source in (CREATE_TIME, APPEND_TIME):
        create_tiered_topic(stack.broker, f"{source}-copy", 4)
    told = {"to_time": str(times[len(times) // 2]), "now_ms": times[-1]}
    prepared = planned(stack, spark, "{topic}-copy", tmp_path, source=f"{CREATE_TIME},{APPEND_TIME}", **told)
    prepared.run()
    for source in (CREATE_TIME, APPEND_TIME):
        rows = [row for row in topics.rows[source] if row.offset in _range(prepared.plan, source, row.partition)]
        assert rows, source
        check_topic(stack, f"{source}-copy", rows)


def _range(plan: ReplayPlan, topic: str, partition: int) -> OffsetRange:
    return plan.ranges[TopicPartition(topic, partition)]


def test_a_lost_checkpoint_makes_no_doubles(
    stack: TieredStack, spark: SparkSession, odd: list[Row], target: str, tmp_path: Path
) -> None:
    replay(stack, spark, target, tmp_path / "first", name="mend")
    report = replay(stack, spark, target, tmp_path / "second", name="mend")
    assert not report.finished_before
    assert report.metrics.records == 0
    check_topic(stack, target, odd)


def test_it_goes_on_at_its_positions(
    stack: TieredStack, spark: SparkSession, odd: list[Row], target: str, tmp_path: Path
) -> None:
    prepared = planned(stack, spark, target, tmp_path)
    writes = topic_writes(as_options(prepared.options, target, prepared.plan))
    reached = {TopicPartition(ODD, partition): Position(700 + partition, 0) for partition in range(2)}
    commit_positions(writes, reached)
    assert read_positions(writes, prepared.plan.ranges) == reached
    prepared.run()
    first = {0: 700, 1: 701, 2: 0}
    check_topic(stack, target, [row for row in odd if row.offset >= first[row.partition]])


def test_positions_that_the_cluster_has_forgotten_are_not_guessed(
    stack: TieredStack, spark: SparkSession, odd: list[Row], target: str, tmp_path: Path
) -> None:
    prepared = planned(stack, spark, target, tmp_path, name="forgotten")
    prepared.run()
    (tmp_path / "finished.json").unlink()
    (tmp_path / ".finished.json.crc").unlink(missing_ok=True)
    with stack.broker.admin() as admin:
        admin.delete_groups([f"replay-forgotten:{ODD}-1"])
    with pytest.raises(DataLossError, match=rf"replay-forgotten .*{ODD}-1 .*offsets\.retention"):
        replay(stack, spark, target, tmp_path, name="forgotten")
    check_topic(stack, target, odd)


def test_what_does_not_fit_is_refused_and_nothing_is_written(
    stack: TieredStack, spark: SparkSession, odd: list[Row], topic: str, tmp_path: Path
) -> None:
    def refused(kind: type[Exception], said: str, target: str = topic, **arguments: Any) -> None:
        with pytest.raises(kind, match=said):
            planned(stack, spark, target, tmp_path, **arguments)
        assert not list(tmp_path.iterdir())

    refused(UnknownTopicError, f"the target {topic} does not exist: create it")
    refused(ConfigurationError, "not a topic's name", "a/b")
    refused(ConfigurationError, f"the target {ODD} is the topic that is replayed", "{topic}")
    create_tiered_topic(stack.broker, topic, 2)
    refused(ConfigurationError, f"{topic} has 2 partitions, but partition 2 of {ODD} .* give it 3 partitions")
    planned(stack, spark, topic, tmp_path, settings={"target.partition.by": "key"})
    refused(
        ConfigurationError,
        "setting target.transaction is unknown.*target.transactional",
        settings={"target.transaction": "true"},
    )
    refused(
        ConfigurationError,
        r"target.kafka.lingerms is not known.*target.kafka.linger.ms",
        settings={"target.kafka.lingerms": "1"},
    )
    by_key = {"target.partition.by": "key"}
    alter_topic(stack.broker, topic, {"message.timestamp.type": "LogAppendTime"})
    refused(ConfigurationError, "would replace the records' timestamps: set it to CreateTime", settings=by_key)
    alter_topic(stack.broker, topic, {"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": "9"})
    refused(ConfigurationError, "message.timestamp.before.max.ms=9, which refuses", settings=by_key)


def test_a_name_is_that_of_one_replay_into_a_topic(
    stack: TieredStack, spark: SparkSession, odd: list[Row], target: str, tmp_path: Path
) -> None:
    first = planned(stack, spark, target, tmp_path / "first", name="once")
    first.run()
    with pytest.raises(ConfigurationError, match=r"\(replay-once\)"):
        planned(stack, spark, target, tmp_path / "second", name="once", to_time="2020-01-01T00:00:00Z")
    longer = replace(first.plan, ranges={each: OffsetRange(5, 9) for each in first.plan.ranges})
    writes = topic_writes(as_options(first.options, target, first.plan))
    commit_positions(writes, {TopicPartition(ODD, 0): Position(9, 7)})
    with pytest.raises(ConfigurationError, match="offset 7 .*once.* 5"):
        TopicTarget(spark, target, first.options).check(longer)


def test_a_record_that_the_target_does_not_take_is_named(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    create_tiered_topic(stack.broker, source, config={"max.message.bytes": "3000000", **LARGE_SEGMENTS})
    create_tiered_topic(stack.broker, topic, config=LARGE_SEGMENTS)
    with RawProducer(stack.broker) as producer:
        producer.send(source, [Record(b"k", b"small")])
        producer.send(source, [Record(b"k", bytes(2_000_000))])
    with pytest.raises(StreamingQueryException, match=rf"offset 1 of {source}-0 .*max\.message\.bytes"):
        replay(stack, spark, topic, tmp_path, source=source)
    alter_topic(stack.broker, topic, {"max.message.bytes": "3000000"})
    replay(
        stack,
        spark,
        topic,
        tmp_path,
        source=source,
        settings={**TRANSACTIONAL, "target.kafka.max.request.size": "3000000"},
    )
    check_topic(stack, topic, read_topic(stack.broker, source))
