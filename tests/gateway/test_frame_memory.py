from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tiered_stream.gateway import frame_memory
from tiered_stream.gateway.frame_memory import FrameMemory, MemoryShare, MemoryShortError

MIB = 1 << 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 0.01)


class Connections:
    """Shares of one budget, and who was evicted."""

    def __init__(self) -> None:
        self.memory = FrameMemory(10 * MIB)
        self._ends: dict[str, asyncio.Future[None]] = {}

    def share(self, name: str) -> MemoryShare:
        self._ends[name] = asyncio.get_running_loop().create_future()
        return self.memory.share(self._ends[name])

    @property
    def evicted(self) -> list[str]:
        return [name for name, end in self._ends.items() if end.done() and type(end.exception()) is MemoryShortError]


def shared(work: Callable[[Connections], Awaitable[None]]) -> None:
    connections = Connections()
    asyncio.run(asyncio.wait_for(work(connections), 600))


def test_a_connection_that_ends_just_as_memory_is_given_back_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 600)

    async def work(connections: Connections) -> None:
        one, other = connections.share("one"), connections.share("other")
        with one.at_work():
            await one.take(8 * MIB)
            waiting = asyncio.create_task(other.take(8 * MIB))
            await asyncio.sleep(0.05)
            one.give_back(8 * MIB)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert connections.memory.used == 0

    shared(work)


def test_what_most_frames_need_counts_for_nothing() -> None:
    async def work(connections: Connections) -> None:
        assert await connections.share("one").take(64 << 10) == 0
        assert connections.memory.used == 0

    shared(work)


def test_who_needs_more_than_is_left_waits_for_those_that_are_at_work() -> None:
    async def work(connections: Connections) -> None:
        one, other = connections.share("one"), connections.share("other")
        with one.at_work():
            await one.take(8 * MIB)
            waiting = asyncio.create_task(other.take(8 * MIB))
            await asyncio.sleep(0.05)
            assert not waiting.done() and connections.evicted == []
            one.give_back(8 * MIB)
            assert await waiting == 8 * MIB
        assert connections.memory.used == other.held == 8 * MIB

    shared(work)


def test_who_has_kept_others_waiting_longest_is_evicted_and_no_more_than_must_be() -> None:
    async def work(connections: Connections) -> None:
        first, second, third = map(connections.share, ("first", "second", "third"))
        await first.take(5 * MIB)
        await second.take(5 * MIB)
        assert await third.take(5 * MIB)
        assert connections.evicted == ["first"]
        first.give_back(5 * MIB)
        assert connections.memory.used == 10 * MIB, "what was taken from it is not given back again"

    shared(work)


def test_who_goes_on_is_not_the_one_that_keeps_others_waiting() -> None:
    async def work(connections: Connections) -> None:
        moving, stuck, third = map(connections.share, ("moving", "stuck", "third"))
        await moving.take(5 * MIB)
        await stuck.take(4 * MIB)
        moving.give_back(1 * MIB)
        assert await third.take(5 * MIB)
        assert connections.evicted == ["stuck"]

    shared(work)


def test_a_frame_larger_than_the_budget_is_alone() -> None:
    async def work(connections: Connections) -> None:
        assert await connections.share("one").take(99 * MIB) == 99 * MIB

    shared(work)


def test_an_answer_does_not_wait_for_requests_of_its_own_connection() -> None:
    async def work(connections: Connections) -> None:
        one = connections.share("one")
        await one.take(8 * MIB)
        assert await one.take(8 * MIB, answer=True)
        request = asyncio.create_task(one.take(8 * MIB))
        await asyncio.sleep(0.05)
        assert not request.done()
        one.give_back(16 * MIB)
        await request
        assert connections.evicted == []

    shared(work)
