"""Many clients and random kills: no wrong answer, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway.hammer import hammer
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.stack.processes import wait_until
from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.offsets import OffsetRange, TopicPartition
from tiered_stream.options import IsolationLevel

if TYPE_CHECKING:
    from tests.stack.tiered_stack import TieredStack

pytestmark = [pytest.mark.stack, pytest.mark.slow]

CLIENTS = int(os.environ.get("TIERED_STREAM_GATEWAY_CLIENTS", "40"))
SECONDS = float(os.environ.get("TIERED_STREAM_GATEWAY_SECONDS", "4"))
"""200 clients and 60 seconds in a soak."""


def test_many_clients_and_random_kills_bring_no_wrong_answer_and_leave_nothing(stack: TieredStack, topic: str) -> None:
    end = tier_segments(stack, topic, [30, 1, 50, 20, 70, 5, 40])
    with RunningGateway(stack.folder / "hammered", stack.options()) as gateway:
        with BrokerClient({"bootstrap.servers": gateway.bootstrap_servers}) as client:
            locator = BrokerLocator(client, IsolationLevel.READ_COMMITTED, part_bytes=1 << 30)
            (located,) = locator.locate({TopicPartition(topic, 0): OffsetRange(0, end)}).values()
        segments = [(each.offsets.start, each.offsets.end) for each in located]
        hammer(gateway.bootstrap_servers, topic, segments, CLIENTS, 1)
        quiet(gateway)
        before = open_files(gateway), resident_mib(gateway)
        tally = hammer(gateway.bootstrap_servers, topic, segments, CLIENTS, SECONDS)
        assert not tally.wrong and tally.answers > 10 * SECONDS
        quiet(gateway)
        assert open_files(gateway) <= before[0]
        assert resident_mib(gateway) < before[1] + 30


def quiet(gateway: RunningGateway) -> None:
    wait_until(lambda: gateway.metric("connections") == 0, "the connections to end")


def open_files(gateway: RunningGateway) -> int:
    return len(list(proc(gateway, "fd").iterdir()))


def resident_mib(gateway: RunningGateway) -> int:
    (line,) = (each for each in proc(gateway, "status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) >> 10


def proc(gateway: RunningGateway, name: str) -> Path:
    assert gateway.process is not None
    return Path(f"/proc/{gateway.process.pid}/{name}")
