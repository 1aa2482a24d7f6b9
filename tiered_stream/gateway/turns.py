"""Turns of work for many clients: who has had the least of late goes first, and who has had much leaves room to others.

Names are found out by threads, of which there are few. A client that asks for much gets its answer in pieces: while
others wait its turn ends after a moment, and its answer tells it to ask for the rest.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TURN_SECONDS = 0.05
"""How long a turn lasts while others wait."""

_HEAVY_SECONDS = 0.2
_HALF_LIFE_SECONDS = 1.0


class Spent:
    """The seconds of work that one client has had; half of them are forgotten in a second."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._at = time.monotonic()

    def seconds(self) -> float:
        """What is not forgotten yet."""
        now = time.monotonic()
        self._seconds *= 0.5 ** ((now - self._at) / _HALF_LIFE_SECONDS)
        self._at = now
        return self._seconds

    def add(self, seconds: float) -> None:
        """It has had so much more."""
        self._seconds = self.seconds() + seconds


class Turns:
    """Serves one event loop; `others_wait` may be asked by any thread.

    Args:
        at_once: how many turns there are at the same time.
        heavy: how many of them clients may have that have had much.
    """

    def __init__(self, at_once: int, heavy: int) -> None:
        self._free = at_once
        self._free_heavy = heavy
        self._order = itertools.count()
        self._waiting: dict[bool, list[tuple[float, int, asyncio.Future[None]]]] = {True: [], False: []}

    def others_wait(self) -> bool:
        """Whether somebody waits for a turn."""
        return any(self._waiting.values())

    @asynccontextmanager
    async def turn(self, spent: Spent) -> AsyncIterator[None]:
        """Wait for a turn; what it takes counts as `spent`."""
        seconds = spent.seconds()
        heavy = seconds > _HEAVY_SECONDS
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting[heavy], (seconds, next(self._order), granted))
        self._grant()
        try:
            await granted
            began = time.monotonic()
            try:
                yield
            finally:
                spent.add(time.monotonic() - began)
        finally:
            if granted.done() and not granted.cancelled():
                self._free += 1
                self._free_heavy += heavy
            granted.cancel()
            self._grant()

    def _grant(self) -> None:
        for heavy in (False, True):
            line = self._waiting[heavy]
            while line and (line[0][2].done() or (self._free and (self._free_heavy or not heavy))):
                granted = heapq.heappop(line)[2]
                if not granted.done():  # else who waited has gone
                    self._free -= 1
                    self._free_heavy -= heavy
                    granted.set_result(None)
