"""Connections, requests and decoders on kafka-python beyond its public interface."""

from __future__ import annotations

import ast
import random
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaProtocolError
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from kafka.protocol.parser import KafkaProtocol

import tiered_stream
from tests.broker.certificates import CertificateAuthority, server_context
from tests.broker.responses import DescribedTopic, fetch_response, fetched_partition, metadata_response
from tiered_stream.broker.wire.kafka_python import ConnectionManager, InterpretingProtocol
from tiered_stream.broker.wire.location_messages import (
    FetchPartition,
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
)

PACKAGE = Path(tiered_stream.__file__).parent
TOPICS = [FetchTopic(UUID(int=5), [FetchPartition(1, 2, 3, 4)])]


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


def answered(protocol: KafkaProtocol, request: Any, version: int, content: bytes) -> Any:
    """What the protocol makes of a response with this content."""
    request.API_VERSION = version
    correlation_id = protocol.send_request(request)
    content = correlation_id.to_bytes(4, "big") + content
    ((_, response),) = protocol.receive_bytes(len(content).to_bytes(4, "big") + content)
    return response


METADATA = metadata_response({"t": DescribedTopic(UUID(int=5), [1], epoch=2)}, {1: ("h", 2)})


@pytest.mark.parametrize("version", range(4, 14))
def test_the_plain_decoders_read_what_the_generated_ones_do(version: int) -> None:
    content = b"\0" * (version >= 9) + bytes(METADATA.encode(version=version))
    theirs, ours = (
        answered(kind(client_id="us"), MetadataRequest(topics=None), version, content)
        for kind in (KafkaProtocol, InterpretingProtocol)
    )
    assert repr(ours) == repr(theirs) and ours.API_VERSION == theirs.API_VERSION == version


@pytest.mark.parametrize("version", range(5))
def test_an_error_to_api_versions_is_read_in_version_0(version: int) -> None:
    kind = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=3)
    content = bytes(ApiVersionsResponse(error_code=35, api_keys=[kind]).encode(version=0))
    theirs, ours = (
        answered(protocol(client_id="us"), ApiVersionsRequest(), version, content)
        for protocol in (KafkaProtocol, InterpretingProtocol)
    )
    assert ours.error_code == theirs.error_code == 35 and repr(ours) == repr(theirs)


@pytest.mark.parametrize("where", [b"", bytes(4), bytes(4) + b"\2" + bytes(4) + b"\2h" + bytes(4)])
def test_an_overlong_number_is_refused_at_its_sixth_byte(where: bytes) -> None:
    """The generated decoders take half a minute for it."""
    with pytest.raises(KafkaProtocolError):
        answered(
            InterpretingProtocol(client_id="us"), MetadataRequest(topics=None), 12, b"\0" + where + b"\xff" * 600_000
        )


def test_what_is_said_again_is_not_decoded_again() -> None:
    protocol, content = InterpretingProtocol(client_id="us"), b"\0" + bytes(METADATA.encode(version=12))
    first, again = (answered(protocol, MetadataRequest(topics=None), 12, content) for _ in range(2))
    assert again is first
    another = answered(protocol, MetadataRequest(topics=None), 12, content.replace(b"\2c", b"\2d"))
    assert (first.cluster_id, another.cluster_id) == ("c", "d")
    assert answered(protocol, MetadataRequest(topics=None), 12, content) is first, "several questions take turns"


def test_what_several_brokers_say_is_decoded_and_kept_once() -> None:
    net, content = NetworkSelector(), b"\0" + bytes(METADATA.encode(version=12))
    manager = ConnectionManager(net, bootstrap_servers="127.0.0.1:1,127.0.0.1:2")
    responses = []
    for broker, end in zip(manager.cluster.bootstrap_brokers(), socket.socketpair(), strict=True):
        with end:
            connection = manager.get_connection(broker.node_id)
            connection.connection_made(KafkaTCPTransport(net, end, "127.0.0.1"))
            responses.append(answered(connection.parser, MetadataRequest(topics=None), 12, content))
    net.close()
    assert responses[0] is responses[1]


def test_bytes_that_come_together_with_the_connections_end_are_received() -> None:
    """A broker that refuses a login answers and closes."""

    def refuse(connection: socket.socket) -> None:
        connection.sendall(b"the reason")
        connection.shutdown(socket.SHUT_WR)

    with connection_to(refuse, None) as (transport, _):
        ended = select.poll()
        ended.register(transport._sock, select.POLLRDHUP)
        ended.poll()
        assert transport._sock_recv() == (b"the reason", None)
        received, error = transport._sock_recv()
    assert received == b""
    assert isinstance(error, KafkaConnectionError)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_answers_arrive_as_they_were_sent_in_whatever_pieces(tls: bool, tmp_path: Path) -> None:
    """Large ones, of which most goes straight where it belongs, and small ones before and after them."""
    log = [random.Random(size).randbytes(size) for size in (10, 3_000_000, 0, 70_000, 65_536, 1, 500_000)]
    frames = [fetched(number, records) for number, records in enumerate(log, 1)]
    identity = CertificateAuthority().issue("broker").write(tmp_path / "broker.pem") if tls else None
    with connection_to(partial(send_in_pieces, b"".join(frames)), identity) as (transport, protocol):
        for number in range(1, len(log) + 1):
            request = FetchRequest(topics=[])
            request.API_VERSION = 13
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
    answer = fetch_response({UUID(int=5): [fetched_partition(0, 0, records)]})
    content = correlation_id.to_bytes(4, "big") + b"\0" + bytes(answer.encode(version=13))
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
) -> Iterator[tuple[KafkaTCPTransport, InterpretingProtocol]]:
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
            assert isinstance(connection.parser, InterpretingProtocol)
            yield transport, connection.parser
        done.result()
    net.close()


def _serve_tls(serve: Callable[[socket.socket], None], connection: socket.socket, identity: Path) -> None:
    with server_context(identity).wrap_socket(connection, server_side=True) as wrapped:
        serve(wrapped)
