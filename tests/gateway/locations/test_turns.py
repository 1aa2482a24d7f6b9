from __future__ import annotations

import asyncio

from tiered_stream.gateway.locations import location_workers
from tiered_stream.gateway.locations.location_workers import RecentWork, Turns


class Clients:
    """Clients that take turns, each until it is told to end; `log` has their names as their turns begin."""

    def __init__(self, at_once: int, heavy: int) -> None:
        self.turns = Turns(at_once, heavy)
        self.log: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    async def come(self, name: str, recent_work: RecentWork) -> asyncio.Task[None]:
        """It has its turn, or waits for it."""
        self.ends[name] = asyncio.Event()

        async def work() -> None:
            async with self.turns.turn(recent_work):
                self.log.append(name)
                await self.ends[name].wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task


def having_had(seconds: float) -> RecentWork:
    recent_work = RecentWork()
    recent_work.add(seconds)
    return recent_work


async def test_who_has_had_the_least_goes_first() -> None:
    clients = Clients(1, 1)
    tasks = [await clients.come("first", RecentWork())]
    tasks += [
        await clients.come(name, having_had(seconds)) for name, seconds in (("much", 9), ("some", 0.1), ("none", 0))
    ]
    assert clients.log == ["first"] and clients.turns.others_wait()
    for end in clients.ends.values():
        end.set()
    await asyncio.gather(*tasks)
    assert clients.log == ["first", "none", "some", "much"] and not clients.turns.others_wait()


async def test_those_that_had_much_leave_turns_to_others() -> None:
    clients = Clients(3, 1)
    tasks = [await clients.come(f"heavy {number}", having_had(9)) for number in range(5)]
    assert clients.log == ["heavy 0"]
    tasks.append(await clients.come("honest", RecentWork()))
    assert clients.log == ["heavy 0", "honest"]
    for end in clients.ends.values():
        end.set()
    await asyncio.gather(*tasks)
    assert len(clients.log) == 6


async def test_a_client_that_goes_while_it_waits_or_works_leaves_its_turn() -> None:
    clients = Clients(1, 1)
    working = await clients.come("working", RecentWork())
    waiting = await clients.come("waiting", RecentWork())
    waiting.cancel()
    working.cancel()
    await asyncio.gather(waiting, working, return_exceptions=True)
    await clients.come("next", RecentWork())
    assert clients.log == ["working", "next"]
    assert not clients.turns.others_wait()


def test_half_of_what_was_spent_is_forgotten_in_a_second() -> None:
    recent_work = having_had(8)
    recent_work._at -= 2 * location_workers._HALF_LIFE_SECONDS
    assert 1.9 < recent_work.seconds() < 2.1
