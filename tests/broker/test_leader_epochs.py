from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochResponse

from tests.broker.scripted import ScriptedClient, answering, metadata
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.leader_epochs import END_OF_LOG, BrokerLineages, leader_epoch_end_offsets
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.model import TopicPartition
from tiered_stream.options.choices import IsolationLevel

TOPIC = "epochs"
PARTITION = TopicPartition(TOPIC, 0)
FENCED_LEADER_EPOCH = 74


def ended(epoch: int, end_offset: int, error_code: int = 0) -> Any:
    """A leader's answer of where an epoch of the topic `t` ends."""
    kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    end = kind.EpochEndOffset(partition=0, error_code=error_code, leader_epoch=epoch, end_offset=end_offset)
    return OffsetForLeaderEpochResponse(topics=[kind(topic="t", partitions=[end])])


def test_an_epoch_ends_where_a_leader_says_that_was_elected_after_the_metadata_was_read() -> None:
    answers, elected = iter([ended(-1, -1, FENCED_LEADER_EPOCH), ended(5, 150)]), iter([5, 6])
    partition = TopicPartition("t", 0)
    with ScriptedClient(answering(lambda *_: next(answers), lambda: metadata(epoch=next(elected)))) as client:
        found = BrokerLineages(client).of({partition: [5]}, client.metadata(["t"])).found
    assert found == {partition: {5: 150}}, "records of epoch 5 from offset 150 on are lost"


@pytest.mark.stack
@pytest.mark.slow
def test_a_lineage_is_rebuilt_over_restarts_by_a_client_that_lived_through_them(restarted_stack: TieredStack) -> None:
    broker = restarted_stack.broker
    ends: dict[int, int] = {}
    client = BrokerClient({"bootstrap.servers": broker.bootstrap_servers})
    reader = BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED)
    try:
        create_tiered_topic(broker, TOPIC)
        for restart in range(3):
            if restart:
                broker.stop()
                broker.start()
            reader.latest([PARTITION])  # waits until the broker leads again, which the producer does not
            with RawProducer(broker) as producer:
                producer.send(TOPIC, [Record(value=b"v")] * (restart + 1))
            leaders = client.run(lambda: client.leaders([PARTITION], client.deadline(), refresh=True))
            epoch = leaders[PARTITION].leader_epoch
            ends[epoch] = reader.latest([PARTITION])[PARTITION]

        newest = max(ends)
        assert len(ends) == 3
        found = BrokerLineages(client).of({PARTITION: range(newest + 3)}, client.metadata([TOPIC])).found
        assert found == {PARTITION: {**ends, newest: END_OF_LOG}}
        assert leader_epoch_end_offsets(client, {PARTITION: newest}).found == {PARTITION: (newest, 6)}
        assert leader_epoch_end_offsets(client, {PARTITION: newest + 1}).found == {PARTITION: (-1, -1)}
        assert leader_epoch_end_offsets(client, {}).found == {}
    finally:
        client.close()
