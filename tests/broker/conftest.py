from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.broker.client import BrokerClient


@pytest.fixture
def client(stack: TieredStack) -> Iterator[BrokerClient]:
    with BrokerClient({"bootstrap.servers": stack.bootstrap_servers}) as connected:
        yield connected
