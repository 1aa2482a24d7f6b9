"""Many clients and random kills: no wrong answer, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway.hammer import hammering
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.rigs.stack.processes import wait_until
from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

pytestmark = [pytest.mark.stack, pytest.mark.slow]

CLIENTS = int(os.environ.get("TIERED_STREAM_GATEWAY_CLIENTS", "40"))
ANSWERS = int(os.environ.get("TIERED_STREAM_GATEWAY_ANSWERS", "2000"))
KILLS = 4


@dataclass(frozen=True)
class Held:
    """What a process holds of the machine."""

    open_files: int
    threads: int
    resident_mib: int


@pytest.fixture
def hammered(stack: TieredStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that keeps few answers: what it holds more after a while has leaked."""
    settings = {**stack.options(), "gateway.answer.cache.bytes": "64k"}
    with RunningGateway(tmp_path_factory.mktemp("hammered"), settings) as gateway:
        yield gateway


@pytest.fixture
def segments(hammered: RunningGateway, stack: TieredStack, topic: str) -> list[tuple[int, int]]:
    end = tier_segments(stack, topic, [30, 1, 50, 20, 70, 5, 40])
    with BrokerClient({"bootstrap.servers": hammered.bootstrap_servers}) as client:
        locator = BrokerLocator(client, IsolationLevel.READ_COMMITTED, part_bytes=1 << 30)
        (located,) = locator.locate({TopicPartition(topic, 0): OffsetRange(0, end)}).values()
    return [(each.offsets.start, each.offsets.end) for each in located]


def test_clients_that_hang_up_at_random_get_no_wrong_answer_and_leave_nothing(
    hammered: RunningGateway, topic: str, segments: list[tuple[int, int]]
) -> None:
    with hammering(hammered.bootstrap_servers, topic, segments, CLIENTS) as tally:
        tally.wait_for_more(ANSWERS // 4)
    before = held(hammered)
    with hammering(hammered.bootstrap_servers, topic, segments, CLIENTS) as tally:
        tally.wait_for_more(ANSWERS)
    assert not tally.wrong and not tally.broken
    after = held(hammered)
    assert after.open_files <= before.open_files + 1 and after.threads <= before.threads + 1
    assert after.resident_mib < before.resident_mib + 16


def test_a_gateway_that_is_killed_at_random_gives_no_wrong_answer(
    hammered: RunningGateway, topic: str, segments: list[tuple[int, int]]
) -> None:
    with hammering(hammered.bootstrap_servers, topic, segments, CLIENTS) as tally:
        for _ in range(KILLS):
            tally.wait_for_more(ANSWERS // KILLS)
            hammered.kill()
            hammered.start()
        tally.wait_for_more(1)
    assert not tally.wrong and tally.broken


def held(gateway: RunningGateway) -> Held:
    """When all connections have ended."""
    wait_until(lambda: gateway.metric("connections") == 0, "the connections to end")
    process = Path(f"/proc/{gateway.process.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    resident = int(status["VmRSS"].split()[0]) >> 10
    return Held(len(list((process / "fd").iterdir())), int(status["Threads"]), resident)
