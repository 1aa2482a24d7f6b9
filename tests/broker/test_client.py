from __future__ import annotations

import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from tests.broker.listener import SILENCE, listener
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic
from tiered_stream.broker.client import BrokerClient
from tiered_stream.errors import BrokerError, BrokerUnavailableError, ConfigurationError, UnknownTopicError
from tiered_stream.model import NO_TOPIC_ID


def server(reply: bytes) -> AbstractContextManager[str]:
    return listener(lambda _: reply, closes=False)


def client(servers: str, **properties: str) -> BrokerClient:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerClient({"bootstrap.servers": servers, "default.api.timeout.ms": "500", **named})


def test_a_broker_that_is_down_gives_one_error_that_names_the_option_and_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        servers = f"127.0.0.1:{listener.getsockname()[1]}"

    with caplog.at_level(logging.WARNING), client(servers) as broker, pytest.raises(BrokerUnavailableError) as raised:
        broker.metadata()

    assert f"kafka.bootstrap.servers = '{servers}'" in str(raised.value)
    assert "within 500 ms" in str(raised.value)
    assert "connection refused" in str(raised.value)
    assert caplog.messages == []


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_server_that_says_nothing_is_given_up(protocol: str) -> None:
    with (
        server(SILENCE) as servers,
        client(servers, security_protocol=protocol) as broker,
        pytest.raises(BrokerUnavailableError, match="500 ms"),
    ):
        broker.metadata()


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConfigurationError, "is an HTTP server.*correct the host and port"),
        (b"\x15\x03\x03\x00\x02\x02\x50", ConfigurationError, "speaks TLS: set kafka.security.protocol to SSL"),
        (b"\xff\xff\xff\xff", BrokerError, r"not Kafka's protocol.*kafka\.security\.protocol = PLAINTEXT"),
    ],
)
def test_a_server_that_does_not_speak_kafka_is_given_up_at_once(reply: bytes, kind: type[Exception], said: str) -> None:
    with (
        server(reply) as servers,
        client(servers, default_api_timeout_ms="600000") as broker,
        pytest.raises(kind, match=said),
    ):
        broker.metadata()


def test_a_server_that_does_not_speak_tls_is_a_matter_of_configuration() -> None:
    with (
        server(b"not TLS at all") as servers,
        client(servers, security_protocol="SSL") as broker,
        pytest.raises(ConfigurationError, match=r"TLS .*kafka\.security\.protocol = SSL"),
    ):
        broker.metadata()


def test_closing_ends_a_call_that_waits() -> None:
    with server(SILENCE) as servers:
        broker = client(servers, default_api_timeout_ms="60000")
        call = broker.start(lambda: broker.fetch_metadata(None, broker.deadline()))
        broker.close()

        with pytest.raises(BrokerUnavailableError):
            call.result(timeout=30)


def test_threads_that_share_a_client_get_topics_with_their_ids_and_leaders(stack: TieredStack, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, partitions=3)

    with client(stack.bootstrap_servers, default_api_timeout_ms="30000") as broker, ThreadPoolExecutor(8) as threads:
        described, *again = threads.map(lambda _: broker.metadata([topic])[topic], range(8))
        everything = broker.metadata()

    assert described.topic_id != NO_TOPIC_ID
    assert sorted(described.partitions) == [0, 1, 2]
    assert {partition.leader_id for partition in described.partitions.values()} == {1}
    assert [everything[topic], *again] == [described] * 8


def test_a_topic_that_does_not_exist_is_named_and_not_created(stack: TieredStack, topic: str) -> None:
    with client(stack.bootstrap_servers, default_api_timeout_ms="30000") as broker:
        with pytest.raises(UnknownTopicError, match="'test-a-topic-that"):
            broker.metadata([topic])

        assert topic not in broker.metadata()
