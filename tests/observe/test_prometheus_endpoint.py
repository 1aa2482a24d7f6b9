"""The HTTP server for monitoring, to which anybody may connect."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from unittest.mock import Mock
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from tests.observe.test_read_metrics import has_ipv6
from tests.rigs.stack.processes import wait_until
from tiered_stream.observe import prometheus_endpoint
from tiered_stream.observe.prometheus_endpoint import Monitor


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = Monitor("127.0.0.1", 0, CollectorRegistry(), str)
    yield made
    made.close()


def health(monitor: Monitor, host: str = "127.0.0.1") -> bytes:
    with urlopen(f"http://{host}:{monitor.port}/health", timeout=10) as response:
        found: bytes = response.read()
    return found


def test_a_client_that_sends_byte_by_byte_is_left_when_the_time_of_a_request_is_over(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prometheus_endpoint, "_REQUEST_SECONDS", 0.3)
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", monitor.port)) as client, pytest.raises(ConnectionError):
        while time.monotonic() - begin < 10:
            client.sendall(b"G")
            time.sleep(0.01)
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_ipv6_can_be_listened_at() -> None:
    with closing(Monitor("::1", 0, CollectorRegistry(), str)) as monitor:
        assert health(monitor, "[::1]") == b"healthy\n"


def test_a_server_starts_without_asking_dns_for_the_name_of_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", Mock(side_effect=AssertionError))
    with closing(Monitor("127.0.0.1", 0, CollectorRegistry(), str)) as monitor:
        assert health(monitor) == b"healthy\n"


def test_connections_beyond_those_that_are_served_at_once_are_closed(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor
) -> None:
    with ExitStack() as opened:
        for _ in range(16):
            opened.enter_context(socket.create_connection(("127.0.0.1", monitor.port)))
        wait_until(lambda: len(monitor._server.served) == 16, "all connections are served", pause=0.01)
        with socket.create_connection(("127.0.0.1", monitor.port)) as one_more:
            assert one_more.recv(1) == b""
    wait_until(lambda: not monitor._server.served, "all connections are closed", pause=0.01)
    assert health(monitor) == b"healthy\n"
