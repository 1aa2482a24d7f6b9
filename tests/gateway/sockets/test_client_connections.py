"""What is refused before anything is spent on it; no broker is there."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority
from tests.gateway.requests import location_fetch
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.protocol.frames import frame
from tiered_stream.gateway.server import Gateway
from tiered_stream.gateway.sockets import client_connections, frame_memory
from tiered_stream.gateway.sockets.relay import Relay


@pytest.fixture
def given(tmp_path: Path, alone: dict[str, str]) -> dict[str, str]:
    return {
        **alone,
        "gateway.listener.security.protocol": "SSL",
        "gateway.listener.ssl.keystore.location": str(
            CertificateAuthority().issue("gateway").write(tmp_path / "gateway.pem")
        ),
    }


@pytest.fixture
def silent(alone: dict[str, str]) -> Iterator[dict[str, str]]:
    """Settings of a gateway without TLS before a broker that says nothing."""
    host, _, port = alone["kafka.bootstrap.servers"].partition(":")
    with socket.create_server((host, int(port))):
        yield {**alone, "kafka.default.api.timeout.ms": "1000", "kafka.request.timeout.ms": "500"}


@asynccontextmanager
async def serving(given: dict[str, str]) -> AsyncIterator[Gateway]:
    gateway = Gateway(GatewaySettings.parse(given))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


async def connected(gateway: Gateway) -> socket.socket:
    """A client that says nothing."""
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", gateway.bootstrap_port))
    return client


def sample(gateway: Gateway, name: str, **labels: str) -> float:
    return gateway.metrics.registry.get_sample_value(f"tiered_stream_gateway_{name}", labels) or 0.0


async def ended(client: socket.socket) -> None:
    assert await asyncio.get_running_loop().sock_recv(client, 1) == b""


@pytest.mark.parametrize("name", ["gateway.max.connections", "gateway.max.connections.per.ip"])
async def test_a_connection_counts_from_when_it_is_accepted(
    given: dict[str, str], name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connections.log, "filters", [])  # another test may have logged the like just now
    async with serving({**given, name: "3", "gateway.shutdown.timeout.ms": "0"}) as gateway:
        clients = [await connected(gateway) for _ in range(3)]
        one_more = await connected(gateway)
        await ended(one_more)
        assert sample(gateway, "connections") == 3
        assert sample(gateway, "closed_connections_total", reason="too_many") == 1
        for client in (one_more, *clients):
            client.close()
        while sample(gateway, "connections"):
            await asyncio.sleep(0.01)
        assert sample(gateway, "closed_connections_total", reason="handshake") == 3
    assert [said for said in caplog.messages if "127.0.0.1 is refused" in said and said.endswith(f": {name} is 3")]


async def test_a_tls_handshake_that_does_not_end_is_ended(given: dict[str, str]) -> None:
    async with serving({**given, "gateway.socket.connection.setup.timeout.ms": "50"}) as gateway:
        with await connected(gateway) as client:
            await ended(client)
        assert sample(gateway, "closed_connections_total", reason="handshake") == 1


async def test_an_evicted_connection_leaves_nothing_for_the_garbage_collector(
    silent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 0.01)
    settings = {**silent, "gateway.queued.max.bytes": "180m", "gateway.shutdown.timeout.ms": "0"}  # one of the two fits
    unfinished = frame(location_fetch({0: (0, 1)}).ljust(4 << 20, b"\0"))[:-1]
    loop = asyncio.get_running_loop()
    gc.collect()
    gc.disable()
    try:
        async with serving(settings) as gateway:
            clients = [await connected(gateway) for _ in range(2)]
            sending = [asyncio.create_task(loop.sock_sendall(client, unfinished)) for client in clients]
            while not sample(gateway, "closed_connections_total", reason="memory"):
                await asyncio.sleep(0.01)
            readers = sum(isinstance(each, asyncio.StreamReader) for each in gc.get_objects())
            assert readers == 2, "of the other connection"
            for each in sending:  # before its socket is closed: of that the event loop would never hear
                each.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            for client in clients:
                client.close()
    finally:
        gc.enable()


async def test_connections_that_wait_for_the_gateways_end_are_in_no_common_queue_and_end_with_it(
    silent: dict[str, str],
) -> None:
    """The end of a connection would search such a queue, which takes longer the more connections are open."""
    count = 20
    async with serving({**silent, "gateway.shutdown.timeout.ms": "600000"}) as gateway:
        clients = [await connected(gateway) for _ in range(count)]
        while sum(isinstance(each, Relay) for each in gc.get_objects()) < count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # all parts of the last relay begin
        events = [each for each in gc.get_objects() if isinstance(each, asyncio.Event)]
        assert max(len(event._waiters) for event in events) == 1
    assert sample(gateway, "closed_connections_total", reason="shutdown") == count
    for client in clients:
        client.close()
