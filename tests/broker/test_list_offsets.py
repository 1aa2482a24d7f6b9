from __future__ import annotations

import pytest

from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.errors import UnknownTopicError
from tiered_stream.model import NO_TOPIC_ID, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def test_partitions_begin_and_end_where_the_leader_says(stack: TieredStack, client: BrokerClient, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2)
    with RawProducer(stack.broker) as producer:
        producer.send(topic, [Record(value=b"v")] * 5, partition=1)
    empty, filled = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = BrokerOffsetReader(client, COMMITTED)

    assert reader.earliest([empty, filled]) == {empty: 0, filled: 0}
    assert reader.latest([empty, filled]) == {empty: 0, filled: 5}
    assert reader.latest([]) == {}


@pytest.mark.contract("1.5 timestamps", "1.5 timestamps -1 and -2")
def test_a_timestamp_gives_the_first_offset_at_or_after_it(
    stack: TieredStack, client: BrokerClient, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2)
    with RawProducer(stack.broker) as producer:
        producer.send(topic, [Record(value=b"v", timestamp_ms=1_000 * second) for second in range(10)])
    partition, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = BrokerOffsetReader(client, COMMITTED)

    def offset(timestamp: int) -> int | None:
        return reader.for_timestamps({partition: timestamp})[partition]

    assert [offset(0), offset(3_000), offset(3_001), offset(9_001)] == [0, 3, 4, None]
    assert [offset(EARLIEST), offset(LATEST)] == [0, 10]
    assert reader.for_timestamps({empty: 0}) == {empty: None}


@pytest.mark.contract("1.8 read_committed")
def test_an_open_transaction_holds_the_end_back_under_read_committed_only(
    stack: TieredStack, client: BrokerClient, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic)
    partition = TopicPartition(topic, 0)
    with RawProducer(stack.broker) as plain, TransactionalProducer(stack.broker, topic) as producer:
        plain.send(topic, [Record(value=b"before")] * 2)
        producer.send(topic, [Record(value=b"open")] * 3)
        plain.send(topic, [Record(value=b"after")])

        assert BrokerOffsetReader(client, COMMITTED).latest([partition]) == {partition: 2}
        assert BrokerOffsetReader(client, UNCOMMITTED).latest([partition]) == {partition: 6}

        producer.commit()
        # The marker takes an offset of its own, a moment after the commit was acknowledged.
        wait_until(
            lambda: BrokerOffsetReader(client, COMMITTED).latest([partition]) == {partition: 7}, "the commit marker"
        )


def test_a_tiered_topic_begins_in_remote_storage(stack: TieredStack, client: BrokerClient, topic: str) -> None:
    create_tiered_topic(stack.broker, topic)
    with RawProducer(stack.broker) as producer:
        producer.send(topic, [Record(value=b"v")] * 4)
    roll(stack.broker, topic)
    tiered = wait_until_tiered(stack.broker, topic)[0]
    partition = TopicPartition(topic, 0)
    reader = BrokerOffsetReader(client, COMMITTED)

    assert reader.earliest([partition]) == {partition: 0}
    assert reader.earliest_local([partition]) == {partition: tiered}


def test_topics_are_described_and_missing_ones_named(stack: TieredStack, client: BrokerClient, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, partitions=3)
    reader = BrokerOffsetReader(client, COMMITTED)

    described = reader.partitions([topic])[topic]
    assert described.partitions == (0, 1, 2)
    assert described.topic_id != NO_TOPIC_ID
    assert reader.partitions([]) == {}
    assert topic in reader.matching(lambda _: True)
    assert reader.matching(lambda name: name == topic) == {topic: reader.partitions([topic])[topic]}
    with pytest.raises(UnknownTopicError, match="'gone'"):
        reader.partitions([topic, "gone"])
    with pytest.raises(UnknownTopicError, match=f"{topic}-3 .* 3 partitions"):
        reader.latest([TopicPartition(topic, 3)])


def test_internal_topics_are_left_out(stack: TieredStack, client: BrokerClient) -> None:
    TransactionalProducer(stack.broker, "makes-the-transaction-log").close()

    assert "__transaction_state" in client.metadata()
    assert BrokerOffsetReader(client, COMMITTED).matching(lambda name: name == "__transaction_state") == {}
