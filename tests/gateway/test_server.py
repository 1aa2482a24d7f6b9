"""The gateway's own work beside its connections; no broker is there."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tiered_stream.gateway import gateway_program, server
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.server import Gateway


@pytest.fixture
def settings(alone: dict[str, str]) -> GatewaySettings:
    return GatewaySettings.parse(alone)


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


@pytest.mark.parametrize("setting", ["gateway.bootstrap.port", "gateway.monitor.port"])
def test_the_error_of_a_port_that_is_taken_names_its_setting_and_the_port(alone: dict[str, str], setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = {"gateway.monitor.port": "0", "gateway.max.connections": "1", setting: str(port)}
        settings = GatewaySettings.parse({**alone, **given})
        with pytest.raises(OSError, match=rf"^{setting}: 127\.0\.0\.1:{port} cannot be listened at: .*in use"):
            asyncio.run(gateway_program._serve(settings))


def test_each_thread_counts_its_own_requests_to_the_storage(settings: GatewaySettings, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"content")
    gateway, counts = Gateway(settings), list[int]()

    def ask(times: int) -> None:
        for _ in range(times):
            gateway._fetcher.store.size("key")  # type: ignore[attr-defined]
        counts.append(gateway._storage_requests_made())

    for times in (2, 3):
        thread = threading.Thread(target=ask, args=(times,))
        thread.start()
        thread.join()
    assert (counts, gateway._storage_requests_made()) == ([2, 3], 0)
