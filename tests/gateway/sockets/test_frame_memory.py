from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tiered_stream.gateway.sockets import frame_memory
from tiered_stream.gateway.sockets.frame_memory import FrameMemory, MemoryShortError, Reservation

MIB = 1 << 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 0.01)


class WatchedMemory(FrameMemory):
    """A budget that knows whether anything did not fit."""

    refused = False

    def fits(self, size: int) -> bool:
        fits = super().fits(size)
        self.refused |= not fits
        return fits

    async def wait_until_refused(self) -> None:
        while not self.refused:
            await asyncio.sleep(0)


class Connections:
    """Connections that share one budget, and who was evicted. What they reserve lasts until the test's end."""

    def __init__(self) -> None:
        self.memory = WatchedMemory(10 * MIB)
        self.held = AsyncExitStack()
        self._ends: dict[str, asyncio.Future[None]] = {}

    async def reserve(self, name: str, size: int) -> Reservation:
        end = self._ends.setdefault(name, asyncio.get_running_loop().create_future())
        return await self.held.enter_async_context(self.memory.reserve(end, size))

    @property
    def evicted(self) -> list[str]:
        return [name for name, end in self._ends.items() if end.done() and type(end.exception()) is MemoryShortError]


@asynccontextmanager
async def shared() -> AsyncIterator[Connections]:
    connections = Connections()
    async with connections.held:
        yield connections
    assert connections.memory.used == 0


async def test_a_connection_that_ends_just_as_memory_is_given_back_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 600)

    async with shared() as connections:
        one = await connections.reserve("one", 7 * MIB)
        one.expect_gateway()
        waiting = asyncio.create_task(connections.reserve("other", 7 * MIB))
        await connections.memory.wait_until_refused()
        one.shrink(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert connections.memory.used == 0


async def test_what_most_frames_need_counts_for_nothing() -> None:
    async with shared() as connections:
        assert (await connections.reserve("one", 64 << 10)).size == 0
        assert connections.memory.used == 0


async def test_what_a_frame_reserved_is_given_back_at_its_end() -> None:
    async with shared() as connections:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(EOFError):
            async with connections.memory.reserve(end, 7 * MIB):
                assert connections.memory.used == 7 * MIB
                raise EOFError
        assert connections.memory.used == 0


async def test_who_needs_more_than_is_left_waits_for_those_that_are_at_work() -> None:
    async with shared() as connections:
        one = await connections.reserve("one", 7 * MIB)
        one.expect_gateway()
        waiting = asyncio.create_task(connections.reserve("other", 7 * MIB))
        await connections.memory.wait_until_refused()
        await asyncio.sleep(0.02)
        assert not waiting.done() and connections.evicted == []
        one.shrink(0)
        assert (await waiting).size == 7 * MIB
        assert connections.memory.used == 7 * MIB


async def test_who_has_kept_others_waiting_longest_is_evicted_and_no_more_than_must_be() -> None:
    async with shared() as connections:
        first = await connections.reserve("first", 4 * MIB)
        await connections.reserve("second", 3 * MIB)
        assert (await connections.reserve("third", 4 * MIB)).size == 4 * MIB
        assert connections.evicted == ["first"]
        first.shrink(0)
        assert connections.memory.used == 7 * MIB, "what was taken from it is not given back again"


async def test_who_goes_on_is_not_the_one_that_keeps_others_waiting() -> None:
    async with shared() as connections:
        moving = await connections.reserve("moving", 4 * MIB)
        await connections.reserve("stuck", 3 * MIB)
        moving.expect_peer()
        assert (await connections.reserve("third", 3 * MIB)).size == 3 * MIB
        assert connections.evicted == ["stuck"]


async def test_a_connection_does_not_evict_itself() -> None:
    async with shared() as connections:
        mine = await connections.reserve("one", 4 * MIB)
        waiting = asyncio.create_task(connections.reserve("one", 4 * MIB))
        await connections.memory.wait_until_refused()
        await asyncio.sleep(0.02)
        assert not waiting.done() and connections.evicted == []
        mine.shrink(0)
        assert (await waiting).size == 4 * MIB


async def test_who_waits_for_a_broker_or_takes_a_large_frame_is_not_slow_so_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 0)

    async with shared() as connections:
        asking = await connections.reserve("asking", 2 * MIB)
        asking.expect_broker()
        taking = await connections.reserve("taking", 2 * MIB)
        taking.expect_peer(1 << 40)
        await connections.reserve("stuck", 2 * MIB)
        assert (await connections.reserve("other", 3 * MIB)).size == 3 * MIB
        assert connections.evicted == ["stuck"]


@pytest.mark.parametrize("size", [8 * MIB, 99 * MIB])
async def test_what_can_never_fit_is_refused_at_once(size: int) -> None:
    async with shared() as connections:
        with pytest.raises(MemoryShortError, match=r"raise gateway\.queued\.max\.bytes"):
            await connections.reserve("one", size)
        assert connections.memory.used == 0


async def test_large_reservations_leave_room_to_small_ones() -> None:
    async with shared() as connections:
        large = await connections.reserve("large", 7 * MIB)
        large.expect_gateway()
        assert (await connections.reserve("small", 1 * MIB)).size == 1 * MIB
        assert large.extend(99 * MIB) == 0, "more than half is in use"
        assert connections.evicted == []


async def test_what_can_be_had_now_is_taken_without_waiting() -> None:
    async with shared() as connections:
        one, other = [await connections.reserve(name, 0) for name in ("one", "other")]
        assert one.extend(1 * MIB) == 1 * MIB
        assert other.extend(99 * MIB) == 10 * MIB // 4
        one.shrink(0)
        other.shrink(0)
        assert connections.memory.used == 0
