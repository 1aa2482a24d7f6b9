"""Stock clients and tools go through the gateway unchanged."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import IncompatibleBrokerVersion, KafkaError

from tests.gateway.running import RunningGateway
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.tools import (
    CLUSTER,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    GROUPS,
    TOPICS,
    run_tool,
)
from tests.rigs.stack.topics import create_tiered_topic

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

pytestmark = [pytest.mark.stack, pytest.mark.slow]

RECORDS = int(os.environ.get("TIERED_STREAM_GATEWAY_RECORDS", "60000"))
"""Of the checksum test; a million in a soak."""


def lines(count: int) -> Iterable[bytes]:
    return (b"%d:" % number + hashlib.md5(b"%d" % number).hexdigest().encode() + b"\n" for number in range(count))


def test_the_console_consumer_gets_through_the_gateway_what_was_sent_to_the_broker(
    stack: TieredStack, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    create_tiered_topic(stack.broker, topic)
    sent, got = tmp_path / "sent", tmp_path / "got"
    sent.write_bytes(b"".join(lines(RECORDS)))
    servers = ["--bootstrap-server", gateway.bootstrap_servers]
    direct = ["--bootstrap-server", stack.bootstrap_servers]
    run_tool(CONSOLE_PRODUCER, [*direct, "--topic", topic], given=sent, timeout=600)
    reading = ["--topic", topic, "--from-beginning", "--max-messages", str(RECORDS), "--group", topic]
    run_tool(CONSOLE_CONSUMER, [*servers, *reading, "--timeout-ms", "60000"], output=got, timeout=600)
    assert hashlib.sha256(got.read_bytes()).hexdigest() == hashlib.sha256(sent.read_bytes()).hexdigest()
    described = run_tool(GROUPS, [*servers, "--describe", "--group", topic])
    assert f"{RECORDS}" in described


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


def test_a_silent_client_costs_nothing_and_does_not_stop_others(gateway: RunningGateway) -> None:
    before = gateway.metric("connections")
    host, _, port = gateway.bootstrap_servers.partition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(50)]
    for number, connection in enumerate(silent):
        connection.sendall(b"\0\0\0\x40half a frame"[: number % 16])
    with KafkaAdminClient(bootstrap_servers=gateway.bootstrap_servers) as admin:
        assert admin.describe_cluster()["brokers"]
    for connection in silent:
        connection.close()
    wait_until(lambda: gateway.metric("connections") <= before, "the connections to end")


def test_writers_are_refused_by_name(stack: TieredStack, topic: str, tmp_path: Path) -> None:
    """The gateway is the test's own, because equal log lines are written once in a while only."""
    create_tiered_topic(stack.broker, topic)
    with RunningGateway(tmp_path / "gateway", stack.options()) as gateway:
        _refused(gateway, topic)


def _refused(gateway: RunningGateway, topic: str) -> None:
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
