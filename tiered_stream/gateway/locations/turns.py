"""Fair turns for many clients: the client with the least recent work goes first, and heavy clients get few threads.

Few threads locate segments for all clients. While other clients wait, a client's turn ends after 50 ms. The response is
then incomplete, and makes the client ask again for the rest. So a client that asks for many segments gets several short
responses.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TURN_SECONDS = 0.05
"""Length of a turn while other clients wait, in seconds."""

_HEAVY_SECONDS = 0.2
_HALF_LIFE_SECONDS = 1.0


class RecentWork:
    """Counter of the CPU seconds that threads have worked for one client. The sum halves every second.

    The time for which a thread waits for a broker or for the GIL does not count. Otherwise a client with little work
    would get many seconds, because its threads mostly wait while other clients cause much work.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._at = time.monotonic()

    def seconds(self) -> float:
        """Return the CPU seconds added so far, halved for each second since they were added."""
        now = time.monotonic()
        self._seconds *= 0.5 ** ((now - self._at) / _HALF_LIFE_SECONDS)
        self._at = now
        return self._seconds

    def add(self, seconds: float) -> None:
        """Add the CPU seconds of work that a thread has just done for the client."""
        self._seconds = self.seconds() + seconds


class Turns:
    """Queue for turns of work, used from one event loop; only `others_wait` may be called from any thread.

    Args:
        at_once: how many turns may run at the same time.
        heavy: how many of these turns may go to clients with more than 0.2 CPU seconds of recent work.
    """

    def __init__(self, at_once: int, heavy: int) -> None:
        self._free = at_once
        self._free_heavy = heavy
        self._order = itertools.count()
        self._waiting: dict[bool, list[tuple[float, int, asyncio.Future[None]]]] = {True: [], False: []}

    def others_wait(self) -> bool:
        """Return whether any client waits for a turn."""
        return any(self._waiting.values())

    @asynccontextmanager
    async def turn(self, recent_work: RecentWork) -> AsyncIterator[None]:
        """Wait for a turn, which lasts until the context ends.

        The client with the least recent work gets the next free turn. The caller adds the turn's CPU seconds to
        `recent_work`.
        """
        seconds = recent_work.seconds()
        heavy = seconds > _HEAVY_SECONDS
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting[heavy], (seconds, next(self._order), granted))
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._free += 1
                self._free_heavy += heavy
            granted.cancel()
            self._grant()

    def _grant(self) -> None:
        """Start the turns of waiting clients while turns are free: clients with little recent work first."""
        for heavy in (False, True):
            line = self._waiting[heavy]
            while line and (line[0][2].done() or (self._free and (self._free_heavy or not heavy))):
                granted = heapq.heappop(line)[2]
                if not granted.done():  # a done future belongs to a client that no longer waits
                    self._free -= 1
                    self._free_heavy -= heavy
                    granted.set_result(None)
