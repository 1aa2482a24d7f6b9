"""What we rely on of kafka-python beyond its public interface: each attribute by name, and that nothing is patched."""

from __future__ import annotations

import ast
import inspect
import random
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka.cluster import ClusterMetadata
from kafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaProtocolError
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.msk import AwsMskIamClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.parser import KafkaProtocol

import tiered_stream
from tests.broker.certificates import CertificateAuthority
from tiered_stream.broker.wire.kafka_python import ConnectionManager, PlainProtocol
from tiered_stream.broker.wire.location_messages import (
    FetchPartition,
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
)

PACKAGE = Path(tiered_stream.__file__).parent
TOPICS = [FetchTopic(UUID(int=5), [FetchPartition(1, 2, 3, 4)])]


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (NetworkSelector.__init__, "(self, **configs)"),
        (NetworkSelector.start, "(self)"),
        (NetworkSelector.close, "(self)"),
        (NetworkSelector.run, "(self, coro, *args)"),
        (NetworkSelector.sleep, "(self, delay)"),
        (NetworkSelector.call_soon_threadsafe, "(self, callback)"),
        (KafkaConnectionManager.__init__, "(self, net, **configs)"),
        (KafkaConnectionManager.close, "(self, node_id=None, timeout_ms=None)"),
        (KafkaConnectionManager.call_soon, "(self, coro, *args)"),
        (KafkaConnectionManager.wait_for, "(self, future, timeout_ms)"),
        (KafkaConnectionManager.least_loaded_node, "(self)"),
        (KafkaConnectionManager.socket_connection_setup_timeout_ms, "(self, node_id)"),
        (
            KafkaConnectionManager.get_connection,
            "(self, node_id, timeout_ms=None, pop_on_close=True, refresh_metadata_on_err=True, "
            "reset_backoff_on_connect=True)",
        ),
        (KafkaConnection.send_request, "(self, request, request_timeout_ms=None)"),
        (KafkaConnection.close, "(self, error=None)"),
        (ClusterMetadata.brokers, "(self)"),
        (ClusterMetadata.bootstrap_brokers, "(self)"),
        (ClusterMetadata.broker_metadata, "(self, broker_id)"),
        (ClusterMetadata.is_bootstrap, "(self, node_id)"),
        (ClusterMetadata.update_metadata, "(self, metadata)"),
        (KafkaConnection.connection_made, "(self, transport)"),
        (register_sasl_mechanism, "(name, klass, overwrite=False)"),
        (AwsMskIamClient.__init__, "(self, host, access_key, secret_key, region, token=None)"),
        (AwsMskIamClient.first_message, "(self)"),
        (KafkaProtocol.send_request, "(self, request, correlation_id=None)"),
        (KafkaProtocol.receive_bytes, "(self, data)"),
    ],
)
def test_what_the_network_layer_offers(function: Callable[..., Any], signature: str) -> None:
    assert str(inspect.signature(function)) == signature


def test_attributes_of_the_network_layer() -> None:
    assert "slow_task_threshold_secs" in NetworkSelector.DEFAULT_CONFIG
    assert isinstance(KafkaConnection.init_future, property)
    connection = KafkaConnection(None)
    assert connection.connected is False
    assert {"cluster", "_conns"} <= set(KafkaConnectionManager.__init__.__code__.co_names)
    assert {"token", "extensions"} <= vars(AbstractTokenProvider).keys()


def test_a_request_of_our_own_gets_the_version_that_both_sides_speak() -> None:
    request = LocationFetchRequest(topics=TOPICS, isolation_level=1)
    assert BrokerVersionData(api_versions={1: (4, 15)}).api_version(request) == 15
    assert BrokerVersionData(api_versions={1: (4, 18)}).api_version(request) == 17
    with pytest.raises(IncompatibleBrokerVersion, match=r"'FetchRequest'.*\[13-17\]"):
        BrokerVersionData(api_versions={1: (4, 12)}).api_version(request)


def sent(protocol: KafkaProtocol) -> None:
    request = LocationFetchRequest(topics=TOPICS, isolation_level=1)
    request.API_VERSION = 15
    assert protocol.send_request(request) == 1


def test_a_request_of_our_own_goes_through_kafka_pythons_connection() -> None:
    protocol = KafkaProtocol(client_id="us")
    sent(protocol)
    theirs = FetchRequest.decode(protocol.send_bytes(), version=15, header=True, framed=True)
    assert (theirs.header.request_api_key, theirs.header.client_id, theirs.header.correlation_id) == (1, "us", 1)
    assert theirs.topics[0].partitions[0].fetch_offset == 3
    response = LocationFetchResponse(0, 0, 0, [FetchTopic(UUID(int=5), [LocatedPartition(1, 0, 9, 8, 7)])])
    content = (1).to_bytes(4, "big") + b"\0" + b"".join(response.pieces())
    assert protocol.receive_bytes(len(content).to_bytes(4, "big") + content) == [(1, response)]


def test_a_response_that_is_none_is_kafka_pythons_error() -> None:
    protocol = KafkaProtocol(client_id="us")
    sent(protocol)
    with pytest.raises(KafkaProtocolError):
        protocol.receive_bytes(b"\0\0\0\7" + (1).to_bytes(4, "big") + b"\0\0\0")


def test_importing_us_leaves_kafka_pythons_fetch_as_it_is() -> None:
    code = """
import importlib, pkgutil, tiered_stream
from kafka.protocol.consumer import FetchRequest, FetchResponse
before = [*FetchRequest.fields, *FetchResponse.fields], FetchResponse.fields["responses"].fields["partitions"].fields
for package in ("broker", "gateway", "locate"):
    path = importlib.import_module(f"tiered_stream.{package}").__path__
    for module in pkgutil.walk_packages(path, f"tiered_stream.{package}."):
        importlib.import_module(module.name)
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer.fetch import FetchResponse as theirs
header = RequestHeader(request_api_key=1, request_api_version=17, correlation_id=1, client_id="c")
assert header.get_response_class().mro()[1] is theirs is FetchResponse
assert theirs.__module__ == "kafka.protocol.consumer.fetch"
partition = FetchResponse.fields["responses"].fields["partitions"]
assert ([*FetchRequest.fields, *FetchResponse.fields], partition.fields) == before
assert not vars(partition).keys() & {"_emit_tagged_decode", "encode_into"}
assert not any("remote" in name for name in partition.fields)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


def test_only_one_module_knows_what_is_not_public() -> None:
    internal = (
        "kafka.net",
        "kafka.protocol.schemas",
        "kafka.protocol.api_",
        "kafka.protocol.parser",
        "kafka.protocol.frame",
    )
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(internal)
    }
    assert found == {"broker/wire/kafka_python.py"}


def test_their_fetch_still_drops_what_it_does_not_know() -> None:
    """Why the codec is our own; when this fails, see whether theirs would do."""
    kind = FetchResponse.FetchableTopicResponse.PartitionData
    partition = kind(partition_index=0, error_code=0, high_watermark=0, records=b"", _1248=b"segments")
    assert partition.unknown_tags == {"_1248": b"segments"}
    topic = FetchResponse.FetchableTopicResponse(topic_id=UUID(int=5), partitions=[partition])
    response = FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])
    assert b"segments" not in bytes(response.encode(version=17))


def answered(protocol: KafkaProtocol, request: Any, version: int, content: bytes) -> Any:
    """What the protocol makes of a response with this content."""
    request.API_VERSION = version
    correlation_id = protocol.send_request(request)
    content = correlation_id.to_bytes(4, "big") + content
    ((_, response),) = protocol.receive_bytes(len(content).to_bytes(4, "big") + content)
    return response


METADATA = MetadataResponse(
    throttle_time_ms=1, cluster_id="c", controller_id=1,
    brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=2, rack=None)],
    topics=[
        MetadataResponse.MetadataResponseTopic(
            error_code=0, name="t", topic_id=UUID(int=5), is_internal=False,
            partitions=[
                MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                    error_code=0, partition_index=0, leader_id=1, leader_epoch=2, replica_nodes=[1], isr_nodes=[1],
                    offline_replicas=[],
                )
            ],
        )
    ],
)  # fmt: skip


@pytest.mark.parametrize("version", range(4, 14))
def test_the_plain_decoders_read_what_the_generated_ones_do(version: int) -> None:
    content = b"\0" * (version >= 9) + bytes(METADATA.encode(version=version))
    theirs, ours = (
        answered(kind(client_id="us"), MetadataRequest(topics=None), version, content)
        for kind in (KafkaProtocol, PlainProtocol)
    )
    assert repr(ours) == repr(theirs) and ours.API_VERSION == theirs.API_VERSION == version


@pytest.mark.parametrize("version", range(5))
def test_an_error_to_api_versions_is_read_in_version_0(version: int) -> None:
    kind = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=3)
    content = bytes(ApiVersionsResponse(error_code=35, api_keys=[kind]).encode(version=0))
    theirs, ours = (
        answered(protocol(client_id="us"), ApiVersionsRequest(), version, content)
        for protocol in (KafkaProtocol, PlainProtocol)
    )
    assert ours.error_code == theirs.error_code == 35 and repr(ours) == repr(theirs)


@pytest.mark.parametrize("where", [b"", bytes(4), bytes(4) + b"\2" + bytes(4) + b"\2h" + bytes(4)])
def test_an_overlong_number_is_refused_at_its_sixth_byte(where: bytes) -> None:
    """The generated decoders take half a minute for it."""
    with pytest.raises(KafkaProtocolError):
        answered(PlainProtocol(client_id="us"), MetadataRequest(topics=None), 12, b"\0" + where + b"\xff" * 600_000)


def test_our_connections_read_with_the_plain_decoders() -> None:
    net = NetworkSelector(client_id="us")
    try:
        manager = ConnectionManager(net, bootstrap_servers="127.0.0.1:1")
        connection = manager.get_connection(manager.cluster.bootstrap_brokers()[0].node_id)
        connection.connection_made(_Transport())
        assert isinstance(connection.parser, PlainProtocol)
    finally:
        net.close()


def test_bytes_that_come_together_with_the_connections_end_are_received() -> None:
    """A broker that refuses a login answers and closes."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    net = NetworkSelector()
    try:
        manager = ConnectionManager(net, bootstrap_servers="127.0.0.1:1")
        transport = KafkaTCPTransport(net, ours, "127.0.0.1")
        connection = manager.get_connection(manager.cluster.bootstrap_brokers()[0].node_id)
        connection.connection_made(transport)
        theirs.sendall(b"the reason")
        theirs.close()
        assert transport._sock_recv() == (b"the reason", None)
        received, error = transport._sock_recv()
        assert received == b""
        assert isinstance(error, KafkaConnectionError)
    finally:
        net.close()
        ours.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_answers_arrive_as_they_were_sent_in_whatever_pieces(tls: bool, tmp_path: Path) -> None:
    """Large ones, of which most goes straight where it belongs, and small ones before and after them."""
    log = [random.Random(size).randbytes(size) for size in (10, 3_000_000, 0, 70_000, 65_536, 1, 500_000)]
    frames = [fetched(number, records) for number, records in enumerate(log, 1)]
    identity = CertificateAuthority().issue("broker").write(tmp_path / "broker.pem") if tls else None
    with connection_to(partial(send_in_pieces, b"".join(frames)), identity) as (transport, protocol):
        for number in range(1, len(log) + 1):
            request = FetchRequest(topics=[])
            request.API_VERSION = 12
            assert protocol.send_request(request) == number
        answers: list[Any] = []
        told = 0
        while len(answers) < len(log):
            select.select([transport._sock], [], [])
            data, error = transport._sock_recv()
            assert error is None
            told += len(data)
            answers += protocol.receive_bytes(data)
    found = [response.responses[0].partitions[0].records for _, response in answers]
    assert found == log and all(memoryview(each).readonly for each in found)
    assert told < sum(map(len, frames)) / 5


def fetched(correlation_id: int, records: bytes) -> bytes:
    """A Fetch's answer, its size before it."""
    kind = FetchResponse.FetchableTopicResponse
    partition = kind.PartitionData(partition_index=0, error_code=0, high_watermark=0, records=records)
    answer = FetchResponse(
        throttle_time_ms=0, error_code=0, session_id=0, responses=[kind(topic="t", partitions=[partition])]
    )
    content = correlation_id.to_bytes(4, "big") + b"\0" + bytes(answer.encode(version=12))
    return len(content).to_bytes(4, "big") + content


def send_in_pieces(data: bytes, connection: socket.socket) -> None:
    chosen, at = random.Random(0), 0
    while at < len(data):
        size = chosen.choice((1, 3, 100, 5_000, 200_000))
        connection.sendall(data[at : at + size])
        at += size


@contextmanager
def connection_to(
    serve: Callable[[socket.socket], None], identity: Path | None
) -> Iterator[tuple[KafkaTCPTransport, PlainProtocol]]:
    """Our end of a connection whose other end `serve` has, on a thread; with TLS where that has an identity."""
    ours, theirs = socket.socketpair()
    net = NetworkSelector()
    with ThreadPoolExecutor(1) as serving, theirs:
        if identity is None:
            transport, done = KafkaTCPTransport(net, ours, "127.0.0.1"), serving.submit(serve, theirs)
        else:
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
            transport = KafkaSSLTransport(net, ours, "127.0.0.1", ssl_context=trusting)
            done = serving.submit(_serve_tls, serve, theirs, identity)
            transport._sock.do_handshake()
        with transport._sock as connected:
            connected.setblocking(False)
            manager = ConnectionManager(net, bootstrap_servers="127.0.0.1:1", receive_message_max_bytes=4_000_000)
            connection = manager.get_connection(manager.cluster.bootstrap_brokers()[0].node_id)
            connection.connection_made(transport)
            yield transport, connection.parser
        done.result()
    net.close()


def _serve_tls(serve: Callable[[socket.socket], None], connection: socket.socket, identity: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)
    with context.wrap_socket(connection, server_side=True) as wrapped:
        serve(wrapped)


class _Transport:
    """As much of a transport as a connection's beginning needs."""

    _sock = None

    def get_protocol(self) -> None:
        return None

    def _sock_recv(self) -> tuple[bytes, None]:
        return b"", None

    def set_protocol(self, protocol: Any) -> None: ...

    def resume_reading(self) -> None: ...

    def getPeer(self) -> tuple[str, int]:  # noqa: N802 - kafka-python's name
        return "127.0.0.1", 1
