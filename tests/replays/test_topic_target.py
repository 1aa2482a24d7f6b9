"""A replay into a topic on the real stack: what a consumer finds there is what the source has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka.partitioner import murmur2
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.replays.topic_rows import check_topic
from tests.replays.topics import APPEND_TIME, CREATE_TIME, ReplayedTopics
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record, Row
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import alter_topic, create_tiered_topic, roll, wait_until_tiered
from tiered_stream.errors import ConfigurationError, DataLossError, UnknownTopicError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.replays.produce import target_producer
from tiered_stream.replays.run_replay import Replay, ReplayReport, plan_replay
from tiered_stream.replays.target_positions import Position, PositionGroup, commit_positions, read_positions
from tiered_stream.replays.topic_settings import as_options, topic_writes
from tiered_stream.replays.topic_target import TopicTarget

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


@dataclass
class ToTopic:
    """Replays into the topic `target`, which is there, and empty."""

    stack: TieredStack
    spark: SparkSession
    odd: list[Row]
    target: str
    folder: Path

    def planned(
        self, checkpoint: str = "checkpoint", *, target: str = "", source: str = ODD,
        settings: Mapping[str, str] = TRANSACTIONAL, **arguments: Any,
    ) -> Replay:  # fmt: skip
        options = {**self.stack.options(), "subscribe": source, **settings}
        to_topic = TopicTarget(self.spark, target or self.target, options)
        given = {"from_time": ALL, "checkpoint": str(self.folder / checkpoint), **arguments}
        return plan_replay(to_topic, **given)

    def run(self, checkpoint: str = "checkpoint", **arguments: Any) -> ReplayReport:
        return self.planned(checkpoint, **arguments).run()

    def check(self, rows: list[Row] | None = None) -> None:
        check_topic(self.stack, self.target, self.odd if rows is None else rows)


@pytest.fixture
def to_topic(stack: TieredStack, spark: SparkSession, odd: list[Row], topic: str, tmp_path: Path) -> ToTopic:
    create_tiered_topic(stack.broker, topic, PARTITIONS)
    return ToTopic(stack, spark, odd, topic, tmp_path)


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_every_record_is_there_as_it_was_in_its_partition(to_topic: ToTopic, transactional: str) -> None:
    report = to_topic.run(settings={"target.transactional": transactional})
    to_topic.check()
    assert report.metrics.records == len(to_topic.odd)
    assert report.metrics.remote_fetch_bytes > 0
    assert to_topic.run(settings={"target.transactional": transactional}).finished_before
    to_topic.check()


def test_a_key_goes_where_kafkas_own_producer_puts_it(to_topic: ToTopic) -> None:
    settings = {"target.partition.by": "key", "target.kafka.bootstrap.servers": to_topic.stack.bootstrap_servers}
    to_topic.run(settings={**settings, "target.kafka.compression.type": "lz4"})
    found = read_topic(to_topic.stack.broker, to_topic.target)
    assert Counter(row.record() for row in found) == Counter(row.record() for row in to_topic.odd)
    keyed = [row for row in found if row.key is not None]
    assert len(keyed) > 1000
    assert [row.partition for row in keyed] == [(murmur2(row.key) & 0x7FFFFFFF) % PARTITIONS for row in keyed]


def test_topics_with_transactions_and_time_ranges_into_topics_by_a_template(
    to_topic: ToTopic, topics: ReplayedTopics
) -> None:
    times = sorted(row.timestamp_ms for row in topics.rows[CREATE_TIME])
    for source in (CREATE_TIME, APPEND_TIME):
        create_tiered_topic(to_topic.stack.broker, f"{source}-copy", 4)
    told = {"to_time": str(times[len(times) // 2]), "now_ms": times[-1]}
    prepared = to_topic.planned(target="{topic}-copy", source=f"{CREATE_TIME},{APPEND_TIME}", **told)
    prepared.run()
    ranges = prepared.plan.ranges
    for source in (CREATE_TIME, APPEND_TIME):
        rows = [row for row in topics.rows[source] if row.offset in ranges[TopicPartition(source, row.partition)]]
        assert rows, source
        check_topic(to_topic.stack, f"{source}-copy", rows)


def test_a_lost_checkpoint_makes_no_doubles(to_topic: ToTopic) -> None:
    to_topic.run("first", name="mend")
    report = to_topic.run("second", name="mend")
    assert not report.finished_before
    assert report.metrics.records == 0
    to_topic.check()


def test_it_goes_on_at_its_positions(to_topic: ToTopic) -> None:
    prepared = to_topic.planned()
    writes = topic_writes(as_options(prepared.target.user_settings, to_topic.target, prepared.plan))
    reached = {TopicPartition(ODD, partition): Position(700 + partition, 0) for partition in range(2)}
    commit_positions(writes, reached)
    assert read_positions(writes, prepared.plan.ranges) == reached
    prepared.run()
    first = {0: 700, 1: 701, 2: 0}
    to_topic.check([row for row in to_topic.odd if row.offset >= first[row.partition]])


def test_planning_a_replay_that_is_running_elsewhere_does_not_fence_it(to_topic: ToTopic) -> None:
    planned = to_topic.planned(name="running")
    writes = topic_writes(as_options(planned.target.user_settings, to_topic.target, planned.plan))
    source = TopicPartition(ODD, 0)
    with closing(PositionGroup(writes, source, stable=True)) as group:
        producer = target_producer(writes, source, group)
        producer.open()
        producer.begin()
        to_topic.planned("elsewhere", name="running")
        producer.commit(Position(9, 0))
        assert group.read() == Position(9, 0)


def test_positions_that_the_cluster_has_forgotten_are_not_guessed(to_topic: ToTopic) -> None:
    checkpoint = Path(to_topic.run(name="forgotten").checkpoint)
    (checkpoint / "finished.json").unlink()
    (checkpoint / ".finished.json.crc").unlink(missing_ok=True)
    with to_topic.stack.broker.admin() as admin:
        admin.delete_groups([f"replay-forgotten:{ODD}-1"])
    with pytest.raises(DataLossError, match=rf"replay-forgotten .*{ODD}-1 .*offsets\.retention"):
        to_topic.run(name="forgotten")
    to_topic.check()


def test_what_does_not_fit_is_refused_and_nothing_is_written(
    stack: TieredStack, spark: SparkSession, odd: list[Row], topic: str, tmp_path: Path
) -> None:
    to_topic = ToTopic(stack, spark, odd, topic, tmp_path)

    def refused(kind: type[Exception], said: str, target: str = topic, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        with pytest.raises(kind, match=said):
            to_topic.planned(target=target, settings=given)
        assert not list(tmp_path.iterdir())

    refused(UnknownTopicError, f"the target {topic} does not exist: create it")
    refused(ConfigurationError, "not a topic's name", "a/b")
    refused(ConfigurationError, f"the target {ODD} is the topic that is replayed", "{topic}")
    create_tiered_topic(stack.broker, topic, 2)
    refused(ConfigurationError, f"{topic} has 2 partitions, but partition 2 of {ODD} .* give it 3 partitions")
    to_topic.planned(settings={"target.partition.by": "key"})
    refused(
        ConfigurationError, "setting target.transaction is unknown.*target.transactional", target_transaction="true"
    )
    refused(
        ConfigurationError, r"target.kafka.lingerms is not known.*target.kafka.linger.ms", target_kafka_lingerms="1"
    )
    alter_topic(stack.broker, topic, {"message.timestamp.type": "LogAppendTime"})
    refused(ConfigurationError, "replace the records' timestamps: set it to CreateTime", target_partition_by="key")
    alter_topic(stack.broker, topic, {"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": "9"})
    refused(ConfigurationError, "message.timestamp.before.max.ms=9, which refuses", target_partition_by="key")


def test_a_name_is_that_of_one_replay_into_a_topic(to_topic: ToTopic) -> None:
    first = to_topic.planned("first", name="once")
    first.run()
    with pytest.raises(ConfigurationError, match=r"\(replay-once\)"):
        to_topic.planned("second", name="once", to_time="2020-01-01T00:00:00Z")
    longer = replace(first.plan, ranges={each: OffsetRange(5, 9) for each in first.plan.ranges})
    writes = topic_writes(as_options(first.target.user_settings, to_topic.target, first.plan))
    commit_positions(writes, {TopicPartition(ODD, 0): Position(9, 7)})
    with pytest.raises(ConfigurationError, match="offset 7 .*once.* 5"):
        first.target.check(longer)


def test_a_record_that_the_target_does_not_take_is_named(to_topic: ToTopic) -> None:
    broker, topic, source = to_topic.stack.broker, to_topic.target, f"{to_topic.target}-source"
    create_tiered_topic(broker, source, config={"max.message.bytes": "3000000", **LARGE_SEGMENTS})
    alter_topic(broker, topic, LARGE_SEGMENTS)
    with RawProducer(broker) as producer:
        producer.send(source, [Record(b"k", b"small")])
        producer.send(source, [Record(b"k", bytes(2_000_000))])
    with pytest.raises(StreamingQueryException, match=rf"offset 1 of {source}-0 .*max\.message\.bytes"):
        to_topic.run(source=source)
    alter_topic(broker, topic, {"max.message.bytes": "3000000"})
    to_topic.run(source=source, settings={**TRANSACTIONAL, "target.kafka.max.request.size": "3000000"})
    to_topic.check(read_topic(broker, source))
