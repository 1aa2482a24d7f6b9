"""A broker of a test's own: restarts, crashes and more listeners."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, leaders, move_leaders
from tests.rigs.stack.transactions import TransactionalProducer

pytestmark = [pytest.mark.stack, pytest.mark.slow]
PLAIN_USERS = {
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="reader-secret";'
    ),
}


def describe(address: str, password: str) -> int:
    login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "reader", "sasl_plain_password": password}
    client = KafkaAdminClient(
        bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", bootstrap_timeout_ms=3000, **login
    )
    with client as admin:
        return len(admin.describe_cluster()["brokers"])


def test_a_broker_keeps_data_and_address_and_serves_more_listeners() -> None:
    with TieredStack(listeners={"SASL": "SASL_PLAINTEXT"}, properties=PLAIN_USERS) as stack:
        folder, broker, address = stack.folder, stack.broker, stack.bootstrap_servers
        create_tiered_topic(broker, "kept")
        produce_batch(broker, "kept", [Record(b"before")])
        broker.kill()
        broker.start()
        produce_batch(broker, "kept", [Record(b"after")])
        assert broker.bootstrap_servers == address
        assert [row.key for row in read_topic(broker, "kept")] == [b"before", b"after"]
        assert describe(broker.address("SASL"), "reader-secret") == 1
        with pytest.raises(KafkaError):
            describe(broker.address("SASL"), "wrong")
    assert not folder.exists() and not broker.process.running


def test_the_leaders_of_two_brokers_move_and_each_broker_may_stop() -> None:
    with TieredStack(brokers=2) as stack:
        first, second = stack.brokers
        create_tiered_topic(first, "moved", partitions=2, replicas=2)
        before = move_leaders(stack.brokers, "moved")
        assert move_leaders(stack.brokers, "moved") == {partition: 3 - node_id for partition, node_id in before.items()}
        with TransactionalProducer(first, "anywhere") as producer:
            for partition in range(2):
                producer.send("moved", [Record(b"%d" % partition)], partition)
            producer.commit()
        assert [row.key for row in read_topic(second, "moved")] == [b"0", b"1"]
        second.stop()
        wait_until(lambda: set(leaders(first, "moved").values()) == {first.node_id}, "the first broker to lead")
        second.start()
        assert move_leaders(stack.brokers, "moved").keys() == {0, 1}
