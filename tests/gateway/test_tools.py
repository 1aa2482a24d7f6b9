"""Stock clients and tools go through the gateway unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import IncompatibleBrokerVersion, KafkaError

from tests.gateway.running import RunningGateway
from tests.rigs.stack.tools import CLUSTER, GROUPS, TOPICS, run_tool
from tests.rigs.stack.topics import create_tiered_topic

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def test_the_admin_tools_see_the_gateway_and_never_the_broker(gateway: RunningGateway, stack: TieredStack) -> None:
    servers = ["--bootstrap-server", gateway.bootstrap_servers]
    endpoints = run_tool(CLUSTER, ["list-endpoints", *servers])
    assert str(gateway.broker_port) in endpoints
    assert stack.bootstrap_servers.rpartition(":")[2] not in endpoints
    assert "__remote_log_metadata" in run_tool(TOPICS, [*servers, "--describe"])


def test_kafka_python_s_readers_work_and_their_groups_too(
    stack: TieredStack, gateway: RunningGateway, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2)
    servers = {"bootstrap_servers": gateway.bootstrap_servers}
    producer = KafkaProducer(bootstrap_servers=stack.bootstrap_servers, transactional_id=topic, compression_type="zstd")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(1_000):
        producer.send(topic, b"%d" % number, partition=number % 2)
    producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        topic, **servers, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed",
        consumer_timeout_ms=20_000,
    )  # fmt: skip
    got: set[bytes] = set()
    while len(got) < 1_000:
        got.add(next(consumer).value)
    consumer.commit()
    consumer.close()
    with KafkaAdminClient(**servers) as admin:
        (broker,) = admin.describe_cluster()["brokers"]
        assert broker["port"] == gateway.broker_port
        assert admin.list_group_offsets(topic)
    described = run_tool(GROUPS, ["--bootstrap-server", gateway.bootstrap_servers, "--describe", "--group", topic])
    assert described.count(topic) >= 2 * 2, "a row of group and topic for each partition"


def test_writers_are_refused_by_name(stack: TieredStack, topic: str, tmp_path: Path) -> None:
    """The gateway is the test's own, because equal log lines are written once in a while only."""
    create_tiered_topic(stack.broker, topic)
    with RunningGateway(tmp_path / "gateway", stack.options()) as gateway:
        with (
            KafkaAdminClient(bootstrap_servers=gateway.bootstrap_servers) as admin,
            pytest.raises(IncompatibleBrokerVersion, match="DeleteTopics"),
        ):
            admin.delete_topics([topic])
        producer = KafkaProducer(bootstrap_servers=gateway.bootstrap_servers, enable_idempotence=False, retries=0)
        with pytest.raises(KafkaError):
            producer.send(topic, b"value").get()
        producer.close()
        assert "Produce (API 0) requests are refused" in gateway.log_file.read_text()
