"""How soon a query or a command gives up brokers that are not there, and how it names other listeners."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.broker.certificates import CertificateAuthority, server_context
from tests.broker.listener import SILENCE, listener
from tests.broker.responses import metadata_response
from tests.broker.scripted import MetadataRequest, ScriptedClient, answering, metadata
from tests.broker.secure import login_module
from tests.dripping import dripping
from tests.local_http import Answer, LocalHttp, respond
from tests.rigs.stack.processes import free_ports
from tiered_stream.broker import broker_check
from tiered_stream.broker import client as client_module
from tiered_stream.broker.broker_check import check_brokers, meet_brokers
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.kafka_errors import AbsentBrokerError
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError, UnknownTopicError
from tiered_stream.model import TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.types import host_and_port

FAR = 600_000
"""Milliseconds that no test waits for."""


def refused() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def handshake(error_code: int, *mechanisms: str) -> Callable[[bytes], bytes]:
    """Response to SaslHandshake; other requests get none."""

    def answer(request: bytes) -> bytes:
        if request[4:6] != b"\0\x11":
            return SILENCE
        body = request[8:12] + error_code.to_bytes(2, "big") + len(mechanisms).to_bytes(4, "big")
        body += b"".join(len(name).to_bytes(2, "big") + name.encode() for name in mechanisms)
        return len(body).to_bytes(4, "big") + body

    return answer


def mismatch(address: str, protocol: str, mechanism: str = "", seconds: float = 2.0) -> str | None:
    host, port = host_and_port(address)
    return broker_check.mismatch(host, port, protocol, mechanism, seconds)


def server_tls(folder: Path) -> ssl.SSLContext:
    return server_context(CertificateAuthority().issue("broker").write(folder / "broker.pem"))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners are probed, and waiting is reported, without a wait before."""
    monkeypatch.setattr(broker_check, "PROBE_AFTER_S", 0.0)
    monkeypatch.setattr(broker_check, "PATIENCE_S", 0.0)


def test_addresses_where_nobody_can_respond_are_given_up_long_before_the_timeout_of_calls() -> None:
    closed, unknown = refused(), "no-such-host.invalid:9092"
    with (
        BrokerClient({"bootstrap.servers": f"{closed},{unknown}"}) as client,
        pytest.raises(AbsentBrokerError) as raised,
    ):
        client.run(lambda: client.meet(Deadline(FAR), Deadline(0), advertised=True))
    assert re.search(rf"{closed}: .*connection refused", str(raised.value))
    assert re.search(rf"{unknown}: .*DNS", str(raised.value))
    assert not client.has_met_brokers


def test_the_first_contact_has_less_patience_unless_the_user_says_how_long_a_call_may_take() -> None:
    default = BrokerConfig.parse({"bootstrap.servers": "a:1"})
    given = BrokerConfig.parse({"bootstrap.servers": "a:1", "default.api.timeout.ms": "90000"})
    assert (default.start_timeout_ms, default.api_timeout_ms) == (2_500, 60_000)
    assert (given.start_timeout_ms, given.api_timeout_ms) == (90_000, 90_000)


def test_a_client_that_has_met_brokers_waits_for_them_as_long_as_before() -> None:
    """Its addresses refuse connections longer than a first contact would wait, counted by attempts."""
    outage = iter(range(30))

    class Restarting(ScriptedClient):
        async def request(self, node_id: int, message: Any, deadline: Deadline) -> Any:
            if client.has_met_brokers and next(outage, None) is not None:
                raise AbsentBrokerError("broker 1: nobody listens there (connection refused)")
            return await super().request(node_id, message, deadline)

    client = Restarting(
        answering(lambda *_: object()),
        {"default.api.timeout.ms": str(FAR), "retry.backoff.max.ms": "1"},
    )
    with client:
        client.run(lambda: client.meet(Deadline(FAR), Deadline(FAR), advertised=True))
        client.config = BrokerConfig.parse({"bootstrap.servers": "a:1", "retry.backoff.max.ms": "1"})
        assert client.metadata(["t"]).keys() == {"t"}
        meet_brokers(client)  # which sends nothing
    assert next(outage, None) is None


def test_a_server_that_names_no_broker_is_asked_again_for_brokers() -> None:
    """So responds a single KRaft broker that the controller has not admitted yet."""
    responses = iter([metadata_response({}, {}), metadata()])
    brokers = answering(lambda *_: object(), lambda: next(responses))
    with ScriptedClient(brokers, {"retry.backoff.ms": "1", "default.api.timeout.ms": str(FAR)}) as client:
        call = client.start(lambda: client.meet(Deadline(FAR), Deadline(FAR), advertised=True))
        call.result(60)
        assert client.has_met_brokers and len(client.asked(MetadataRequest)) == 2


@pytest.mark.parametrize("advertised", [True, False])
def test_servers_that_name_no_broker_are_unavailable_when_time_is_up(advertised: bool) -> None:
    with ScriptedClient(lambda *_: metadata_response({}, {})) as client:
        call = client.start(lambda: client.meet(Deadline(0), Deadline(0), advertised=advertised))
        with pytest.raises(BrokerUnavailableError):
            call.result(60)
        assert not client.has_met_brokers


def test_servers_that_say_nothing_do_not_delay_a_server_that_responds() -> None:
    class Slow(ScriptedClient):
        async def request(self, node_id: Any, message: Any, deadline: Deadline) -> Any:
            if node_id in ("bootstrap-0", "bootstrap-1", 1):
                await self.connections.sleep(FAR)
            return await super().request(node_id, message, deadline)

    client = Slow(
        lambda _, message: metadata(), {"bootstrap.servers": "a:1,b:1,c:1", "default.api.timeout.ms": str(FAR)}
    )
    with client:
        meet_brokers(client)
    assert client.has_met_brokers


def test_brokers_that_advertise_an_address_where_nobody_is_are_given_up_with_its_name() -> None:
    class Advertising(ScriptedClient):
        async def request(self, node_id: Any, message: Any, deadline: Deadline) -> Any:
            if node_id in (1, 2):
                raise AbsentBrokerError(f"broker {node_id} at inside:9092: the name is not known here (DNS)")
            return await super().request(node_id, message, deadline)

    with (
        Advertising(lambda *_: metadata()) as client,
        pytest.raises(BrokerUnavailableError, match=r"inside:9092: the name.*advertised\.listeners"),
    ):
        client.run(lambda: client.meet(Deadline(FAR), Deadline(0), advertised=True))


class _SaysNo(BaseHTTPRequestHandler):
    """As an S3 server does: a status line, whatever was asked."""

    def do_GET(self) -> None:
        respond(self, Answer(400))


@pytest.mark.usefixtures("at_once")
def test_an_http_server_that_waits_for_the_end_of_a_line_is_named() -> None:
    with LocalHttp(_SaysNo) as server:
        address = server.url.removeprefix("http://")
        with (
            BrokerClient({"bootstrap.servers": address}) as client,
            pytest.raises(ConfigurationError, match=f"{address} .*HTTP"),
        ):
            meet_brokers(client)


@pytest.mark.parametrize(
    ("protocol", "error_code", "mechanisms", "tls", "said"),
    [
        ("PLAINTEXT", 34, (), True, "set kafka.security.protocol to SSL$"),
        ("PLAINTEXT", 33, ("PLAIN", "SCRAM-SHA-256"), False,
         "to SASL_PLAINTEXT and kafka.sasl.mechanism to PLAIN or SCRAM-SHA-256$"),
        ("SSL", 33, ("OAUTHBEARER",), True, "to SASL_SSL and kafka.sasl.mechanism to OAUTHBEARER$"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("at_once")
def test_a_kafka_listener_of_another_protocol_is_named_with_the_right_setting(
    tmp_path: Path, protocol: str, error_code: int, mechanisms: tuple[str, ...], tls: bool, said: str
) -> None:
    with listener(handshake(error_code, *mechanisms), server_tls(tmp_path) if tls else None) as address:
        assert re.search(said, mismatch(address, protocol) or "")
        right = broker_check.Listener(tls, mechanisms).security_protocol
        assert mismatch(address, right) == ""


@pytest.mark.parametrize(
    ("protocol", "error_code", "mechanisms", "seen"),
    [
        ("SSL", 34, (), "protocol PLAINTEXT, without TLS,"),
        ("SASL_SSL", 33, ("PLAIN",), "protocol SASL_PLAINTEXT, without TLS,"),
        ("SASL_SSL", 34, (), "protocol PLAINTEXT, without TLS and logins,"),
        ("SASL_PLAINTEXT", 34, (), "protocol PLAINTEXT, without logins,"),
        ("SASL_PLAINTEXT", 33, ("PLAIN",), "no logins by kafka.sasl.mechanism = SCRAM-SHA-256, only by PLAIN."),
    ],
)
def test_a_response_that_anybody_may_have_sent_leads_to_no_advice_for_less_security(
    protocol: str, error_code: int, mechanisms: tuple[str, ...], seen: str
) -> None:
    with listener(handshake(error_code, *mechanisms)) as address:
        found = mismatch(address, protocol, "SCRAM-SHA-256")
    assert found is not None and seen in found
    assert "set kafka." not in found and "Nothing proves that a broker sent this: find out from" in found


@pytest.mark.parametrize("name", ["\x1b[31mPLAIN", "PLAIN\nset kafka.security.protocol", "PLAIN" * 50, "", "plain"])
def test_a_mechanism_whose_name_no_standard_allows_is_not_repeated(name: str) -> None:
    with listener(handshake(33, name)) as address:
        assert mismatch(address, "PLAINTEXT") == ""


@pytest.mark.parametrize("tls", [False, True])
def test_a_peer_that_sends_byte_by_byte_does_not_hold_the_first_contact_past_its_deadline(
    tmp_path: Path, tls: bool
) -> None:
    """Each byte comes long before a wait for one would end."""
    with dripping(b"\0\0\x0f", b"\x0f", server_tls(tmp_path) if tls else None, seconds=0.01) as (url, _):
        address = urlsplit(url).netloc
        kafka = {"bootstrap.servers": address, "default.api.timeout.ms": "1500"}
        with BrokerClient(kafka) as client, pytest.raises(BrokerUnavailableError, match="1500 ms|closed"):
            begin = time.monotonic()
            meet_brokers(client)
    assert time.monotonic() - begin < 10


def test_a_listener_without_the_mechanism_is_named_with_its_mechanisms() -> None:
    with listener(handshake(33, "PLAIN", "OAUTHBEARER")) as address:
        for mechanism in ("PLAIN", ""):
            assert mismatch(address, "SASL_PLAINTEXT", mechanism) == ""
        found = mismatch(address, "SASL_PLAINTEXT", "SCRAM-SHA-256")
    assert found is not None and "no logins by kafka.sasl.mechanism = SCRAM-SHA-256, only by PLAIN or OAU" in found


def test_a_refused_login_names_the_listener_that_has_none() -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login_module("PLAIN", "alice", "secret"),
    }  # fmt: skip

    def answer(_: int, message: Any) -> Any:
        raise BrokerAuthorizationError("refused the login")

    for asks, wanted in (
        (handshake(34), pytest.raises(ConfigurationError, match=r"kafka\.security\.protocol .*PLAINTEXT")),
        (handshake(33, "PLAIN"), pytest.raises(BrokerAuthorizationError, match="refused the login")),
    ):
        with (
            listener(asks) as address,
            ScriptedClient(answer, {**login, "bootstrap.servers": address}) as client,
            wanted,
        ):
            meet_brokers(client)


def test_a_listener_that_says_nothing_may_be_right_and_nobody_is_not_a_mismatch() -> None:
    with listener(lambda _: SILENCE) as address:
        assert mismatch(address, "PLAINTEXT", seconds=0.1) == ""
    assert mismatch(refused(), "PLAINTEXT") is None


@pytest.mark.parametrize("length", [0, 8, 9, 12, 14, 15])
def test_a_response_that_is_cut_off_is_no_listener(length: int) -> None:
    whole = handshake(33, "PLAIN")(b"\0" * 4 + b"\0\x11\0\x01tist")
    assert broker_check._parse(whole, tls=False) == broker_check.Listener(False, ("PLAIN",))
    assert broker_check._parse(whole[:length], tls=False) in (None, broker_check.Listener(False, ("",)))


def test_a_response_with_a_null_in_place_of_a_mechanism_is_no_listener() -> None:
    with_null = b"\0" * 4 + b"tist" + b"\0\x21" + b"\0\0\0\2" + b"\0\5PLAIN" + b"\xff\xff"
    assert broker_check._parse(with_null, tls=False) is None


@pytest.mark.usefixtures("at_once")
def test_brokers_that_respond_slowly_are_waited_for_and_this_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker_check, "_PROBE_S", 0.1)
    with (
        listener(lambda _: SILENCE) as address,
        BrokerClient({"bootstrap.servers": address, "default.api.timeout.ms": "500"}) as client,
        pytest.raises(BrokerUnavailableError, match="500 ms"),
    ):
        meet_brokers(client)
    (said,) = caplog.messages
    assert f"kafka.bootstrap.servers = '{address}'" in said


def test_a_partition_without_a_leader_is_waited_for_and_this_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader comes only after the warning."""
    monkeypatch.setattr(client_module, "PATIENCE_S", 0.05)

    def answer(_: int, message: Any) -> Any:
        if isinstance(message, MetadataRequest):
            return metadata(leader=1 if caplog.messages else -1)
        raise UnknownTopicError("enough")

    with ScriptedClient(answer, {"default.api.timeout.ms": str(FAR)}) as client:
        reader = BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED)
        with pytest.raises(UnknownTopicError, match="enough"):
            reader.earliest([TopicPartition("t", 0)])
    assert caplog.messages == ["still trying: partition t-0: the partition has no leader"]


def test_an_archive_needs_no_broker_before_spark() -> None:
    check_brokers(
        {"remote.log.locator": "archive", "kafka.bootstrap.servers": refused(), "subscribe": "t"}, topics=True
    )
