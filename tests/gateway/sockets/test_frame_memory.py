from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tiered_stream.gateway.sockets import frame_memory
from tiered_stream.gateway.sockets.frame_memory import FrameMemory, MemoryShare, MemoryShortError

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


async def waits(share: MemoryShare) -> None:
    while not share.waiting:
        await asyncio.sleep(0)


def test_a_connection_that_ends_just_as_memory_is_given_back_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 600)

    async def work(connections: Connections) -> None:
        one, other = connections.share("one"), connections.share("other")
        with one.at_work():
            await one.reserve(7 * MIB)
            waiting = asyncio.create_task(other.reserve(7 * MIB))
            await waits(other)
            one.give_back(7 * MIB)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert connections.memory.used == 0

    shared(work)


def test_what_most_frames_need_counts_for_nothing() -> None:
    async def work(connections: Connections) -> None:
        assert await connections.share("one").reserve(64 << 10) == 0
        assert connections.memory.used == 0

    shared(work)


def test_who_needs_more_than_is_left_waits_for_those_that_are_at_work() -> None:
    async def work(connections: Connections) -> None:
        one, other = connections.share("one"), connections.share("other")
        with one.at_work():
            await one.reserve(7 * MIB)
            waiting = asyncio.create_task(other.reserve(7 * MIB))
            await waits(other)
            assert not waiting.done() and connections.evicted == []
            one.give_back(7 * MIB)
            assert await waiting == 7 * MIB
        assert connections.memory.used == other.held == 7 * MIB

    shared(work)


def test_who_has_kept_others_waiting_longest_is_evicted_and_no_more_than_must_be() -> None:
    async def work(connections: Connections) -> None:
        first, second, third = map(connections.share, ("first", "second", "third"))
        await first.reserve(4 * MIB)
        await second.reserve(3 * MIB)
        assert await third.reserve(4 * MIB)
        assert connections.evicted == ["first"]
        first.give_back(4 * MIB)
        assert connections.memory.used == 7 * MIB, "what was taken from it is not given back again"

    shared(work)


def test_who_goes_on_is_not_the_one_that_keeps_others_waiting() -> None:
    async def work(connections: Connections) -> None:
        moving, stuck, third = map(connections.share, ("moving", "stuck", "third"))
        await moving.reserve(4 * MIB)
        await stuck.reserve(3 * MIB)
        moving.give_back(1 * MIB)
        assert await third.reserve(4 * MIB)
        assert connections.evicted == ["stuck"]

    shared(work)


def test_who_waits_for_a_broker_or_takes_a_large_frame_is_not_slow_so_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 0)

    async def work(connections: Connections) -> None:
        asking, taking, stuck, other = map(connections.share, ("asking", "taking", "stuck", "other"))
        await asking.reserve(2 * MIB)
        asking.wait_for(broker=True)
        await taking.reserve(2 * MIB)
        taking.wait_for(moving=1 << 40)
        await stuck.reserve(2 * MIB)
        assert await other.reserve(3 * MIB)
        assert connections.evicted == ["stuck"]

    shared(work)


@pytest.mark.parametrize("size", [8 * MIB, 99 * MIB])
def test_what_can_never_fit_is_refused_at_once(size: int) -> None:
    async def work(connections: Connections) -> None:
        with pytest.raises(MemoryShortError, match=r"raise gateway\.queued\.max\.bytes"):
            await connections.share("one").reserve(size)
        assert connections.memory.used == 0

    shared(work)


def test_large_reservations_leave_room_to_small_ones() -> None:
    async def work(connections: Connections) -> None:
        large, small = connections.share("large"), connections.share("small")
        with large.at_work():
            await large.reserve(7 * MIB)
            assert await small.reserve(1 * MIB)
            assert large.extend(99 * MIB) == 0, "more than half is in use"
            assert connections.evicted == []

    shared(work)


def test_what_can_be_had_now_is_taken_without_waiting() -> None:
    async def work(connections: Connections) -> None:
        one, other = connections.share("one"), connections.share("other")
        assert one.extend(1 * MIB) == 1 * MIB
        assert other.extend(99 * MIB) == 10 * MIB // 4
        one.give_back(1 * MIB)
        other.give_back(10 * MIB // 4)
        assert connections.memory.used == 0

    shared(work)


def test_both_directions_of_a_connection_leave_unread_what_is_reserved_once() -> None:
    async def work(connections: Connections) -> None:
        one = connections.share("one")
        async with one.unread(1 * MIB):
            async with one.unread(1 * MIB):
                assert one.held == 2 * MIB
            assert one.held == 2 * MIB
        assert one.held == 0

    shared(work)
