"""The gateway's own work beside its connections; no broker is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tiered_stream.gateway import server
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
