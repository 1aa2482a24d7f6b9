"""A gateway before the session's stack, and tests that are coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway.running import RunningGateway
from tests.rigs.stack.processes import free_ports

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own.

    The result is None for other tests. With any other result, pytest would not run them.
    """
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None

    async def run() -> None:
        async with asyncio.timeout(600):
            await test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters})

    asyncio.run(run())
    return True


@pytest.fixture(scope="package")
def gateway(stack: TieredStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """It signs locations, and serves all tests of this folder."""
    settings = {**stack.options(), "gateway.signed.location.lifetime.seconds": "60"}
    with RunningGateway(tmp_path_factory.mktemp("gateway"), settings) as running:
        yield running


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """Settings of a gateway before a broker that is not there."""
    bootstrap, broker = free_ports(2)
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{broker}",
        "gateway.listener.host": "127.0.0.1",
        "gateway.advertised.host": "127.0.0.1",
        "gateway.bootstrap.port": str(bootstrap),
        "gateway.broker.ports": f"{broker}-{broker}",
        "remote.storage.uri": tmp_path.as_uri(),
    }
