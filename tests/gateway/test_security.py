"""SASL, TLS and ACLs: the broker decides, on the client's own login, and the gateway gives nothing before that."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest
from kafka.protocol.sasl import SaslHandshakeRequest

from tests.gateway.requests import location_fetch, request
from tests.gateway.secured import MAY_NOT, MAY_READ, SEGMENTS, SecureGateway, secured
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.record_fetch import FetchTerms, fetch_records
from tiered_stream.errors import BrokerAuthorizationError
from tiered_stream.gateway.protocol.frames import frame
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

pytestmark = [pytest.mark.stack, pytest.mark.slow]

COMMITTED = IsolationLevel.READ_COMMITTED


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureGateway]:
    with secured(tmp_path_factory.mktemp("secure-gateway")) as running:
        yield running


def located(client: BrokerClient, partition: TopicPartition) -> int:
    """How many signed locations the client gets."""
    locator = BrokerLocator(client, COMMITTED, part_bytes=1 << 30)
    (locations,) = locator.locate({partition: OffsetRange(0, 91)}).values()
    return sum(each.signed_url is not None for each in locations)


def test_with_read_there_are_locations(secure: SecureGateway) -> None:
    with secure.client("alice") as client:
        assert located(client, MAY_READ) == SEGMENTS


def test_without_read_there_is_the_broker_s_own_error_and_no_location(secure: SecureGateway) -> None:
    before = secure.gateway.metric("signed_locations_total")
    with secure.client("alice") as client:
        with pytest.raises(BrokerAuthorizationError, match="secret-0, offset 0: .*grant READ"):
            located(client, MAY_NOT)
        with pytest.raises(BrokerAuthorizationError, match="grant READ"):
            fetch_records(client, MAY_NOT, 0, FetchTerms(COMMITTED, max_bytes=1, max_wait_ms=0))
    assert secure.gateway.metric("signed_locations_total") == before
    assert secure.gateway.metric('located_partitions_total{result="refused"}') >= 1


def test_who_may_read_one_topic_gets_nothing_of_another_in_the_same_request(secure: SecureGateway) -> None:
    with secure.client("alice") as client, pytest.raises(BrokerAuthorizationError, match="secret-0"):
        BrokerLocator(client, COMMITTED, part_bytes=1 << 30).locate(
            {MAY_READ: OffsetRange(0, 91), MAY_NOT: OffsetRange(0, 91)}
        )


def test_who_may_not_even_describe_a_topic_is_told_so(secure: SecureGateway) -> None:
    with secure.client("bob") as client, pytest.raises(BrokerAuthorizationError, match="DESCRIBE"):
        located(client, MAY_READ)


def test_a_wrong_password_is_refused_by_the_broker(secure: SecureGateway) -> None:
    with (
        secure.client("alice", "wrong-Secret-0815") as client,
        pytest.raises(BrokerAuthorizationError, match="refused the login"),
    ):
        located(client, MAY_READ)


@pytest.mark.parametrize(
    "sent",
    [frame(location_fetch({0: (0, 9)})), (1 << 20).to_bytes(4, "big") + bytes.fromhex("0003 000c 00000001")],
    ids=["locations", "a large request"],
)
@pytest.mark.parametrize("handshake", [False, True])
def test_who_has_not_logged_in_is_hung_up_on(secure: SecureGateway, sent: bytes, handshake: bool) -> None:
    host, _, port = secure.gateway.bootstrap_servers.partition(":")
    context = ssl.create_default_context(cafile=secure.properties["ssl.truststore.location"])
    with (
        context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host) as connection,
        connection.makefile("rb") as answers,
    ):
        if handshake:
            connection.sendall(frame(request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)))
            assert answers.read(int.from_bytes(answers.read(4), "big")).endswith(b"SCRAM-SHA-256")
        connection.sendall(sent)
        assert answers.read() == b""
    assert "before a login" in secure.gateway.log_file.read_text()


def test_no_secret_is_in_the_gateway_s_log(secure: SecureGateway) -> None:
    text = secure.gateway.log_file.read_text()
    assert "alice-secret" not in text and "gateway-secret" not in text and "Signature" not in text
