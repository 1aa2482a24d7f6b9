"""The gateway's own work beside its connections; no broker is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stack.processes import free_ports
from tiered_stream.gateway import server
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.server import Gateway


@pytest.fixture
def settings(tmp_path: Path) -> GatewaySettings:
    bootstrap, broker = free_ports(2)
    return GatewaySettings.parse(
        {
            "kafka.bootstrap.servers": f"127.0.0.1:{broker}",
            "gateway.listener.host": "127.0.0.1",
            "gateway.advertised.host": "127.0.0.1",
            "gateway.bootstrap.port": str(bootstrap),
            "gateway.broker.ports": f"{broker}-{broker}",
            "remote.storage.uri": tmp_path.as_uri(),
        }
    )


def test_an_error_that_nobody_expects_is_seen_in_the_health_and_the_work_goes_on(
    settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_RETRY_SECONDS", 0.01)

    async def run() -> list[str]:
        gateway, seen = Gateway(settings), []
        tries = asyncio.Event()

        def ask(_: Callable[[], object]) -> object:
            seen.append(gateway.unhealthy_reason)
            if len(seen) == 3:
                loop.call_soon_threadsafe(tries.set)
            raise OverflowError("of a record")

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(gateway._client, "ask_any_broker", ask)
        await gateway.start()
        await tries.wait()
        await gateway.stop()
        return seen

    first, *others = asyncio.run(run())
    assert first == "no broker has responded yet"
    assert set(others) == {"an unexpected OverflowError: of a record"}
