"""One budget of memory for the frames of all connections: those that are read whole, and what a peer has not taken yet.

A request reserves everything that it needs before anything of it is read, the answer included. So nobody holds memory
while waiting for more, and what can never fit is refused at once. Meanwhile whoever has kept memory for longer than a
second only because its own peer is slow is closed, the one that kept it longest first: a few connections whose frames
never end, or that read nothing, do not keep others from theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PATIENCE_SECONDS = 1.0
_PATIENCE_WITH_BROKERS_SECONDS = 30.0
_LEAST_BYTES_A_SECOND = 2 << 20  # of a frame that a peer sends or takes; who is slower counts as slow
_FREE_BYTES = 64 << 10  # what a connection has in any case; most frames need no more
_SMALL_BYTES = 1 << 20  # from here on, a reservation leaves a quarter of the budget to smaller ones


class MemoryShortError(Exception):
    """The connection is closed because others need the memory that it keeps, or because it needs too much."""


class FrameMemory:
    """The budget. Serves one event loop.

    Args:
        total: bytes.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._given_back = asyncio.Event()
        self._slow_from: dict[MemoryShare, float] = {}
        """By share that waits for its peer: from when on it counts as slow."""

    @property
    def largest(self) -> int:
        """The most bytes that one reservation may have."""
        return self.total - self.total // 4

    def share(self, evicted: asyncio.Future[None]) -> MemoryShare:
        """For one connection, which must end with MemoryShortError when `evicted` does."""
        return MemoryShare(self, evicted)

    def fits(self, size: int) -> bool:
        """Whether a reservation of `size` bytes can be had now."""
        return self.used + size <= (self.total if size <= _SMALL_BYTES else self.largest)

    def changed(self, share: MemoryShare, by: int) -> None:
        """For `MemoryShare` only: it holds more or less, or begins or ends some work."""
        self.used += by
        self._slow_from.pop(share, None)
        if share.held and not share.working:
            patience = _PATIENCE_WITH_BROKERS_SECONDS if share.asking_broker else _PATIENCE_SECONDS
            patience += share.moving / _LEAST_BYTES_A_SECOND
            self._slow_from[share] = time.monotonic() + patience
        if by < 0:
            self._given_back.set()

    async def room(self, share: MemoryShare) -> None:
        """For `MemoryShare` only: wait until some memory was given back."""
        others = ((slow_from, each) for each, slow_from in self._slow_from.items() if each is not share)
        slow_from, slowest = min(others, key=lambda other: other[0], default=(0.0, None))
        patience = slow_from - time.monotonic() if slowest else _PATIENCE_SECONDS
        if slowest is not None and patience <= 0:
            slowest.evict()
            return
        self._given_back.clear()
        # Not `wait_for`: Python 3.11's forgets a cancellation that comes together with what it waits for.
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._given_back.wait()


class MemoryShare:
    """What one connection holds of the budget."""

    def __init__(self, memory: FrameMemory, evicted: asyncio.Future[None]) -> None:
        self._memory = memory
        self._evicted = evicted
        self._unread_lock = asyncio.Lock()
        self._unread_users = 0
        self._unread = 0
        self.held = 0
        self.working = 0
        self.asking_broker = False
        self.moving = 0
        self.waiting = False

    async def reserve(self, size: int) -> int:
        """Wait for so many bytes; return how many are to be given back.

        Raises:
            MemoryShortError: so many can never be had.
        """
        if size <= _FREE_BYTES:
            return 0
        memory = self._memory
        if size > memory.largest:
            raise MemoryShortError(
                f"a frame needs {size:,} bytes, of {memory.largest:,} at most: raise gateway.queued.max.bytes, "
                "or ask for fewer partitions at once"
            )
        while not memory.fits(size):
            self.waiting = True
            try:
                await memory.room(self)
            finally:
                self.waiting = False
        self._take(size)
        return size

    def extend(self, wanted: int) -> int:
        """Take as much of `wanted` as can be had now, without waiting and with half of the budget left to others."""
        free = min(self._memory.total // 2 - self._memory.used, self._memory.total // 4)
        size = max(0, min(wanted, free))
        if size:
            self._take(size)
        return size

    def _take(self, size: int) -> None:
        self.held += size
        self._memory.changed(self, size)

    def give_back(self, size: int) -> None:
        """What `reserve` or `extend` has returned."""
        size = min(size, self.held)  # nothing is left to one that was evicted
        self.held -= size
        self._memory.changed(self, -size)

    @asynccontextmanager
    async def unread(self, size: int) -> AsyncIterator[None]:
        """Meanwhile a peer leaves up to `size` bytes unread. Both directions of a connection share one reservation."""
        async with self._unread_lock:
            if not self._unread_users:
                self._unread = await self.reserve(2 * size)
            self._unread_users += 1
        try:
            yield
        finally:
            self._unread_users -= 1
            if not self._unread_users:
                self.give_back(self._unread)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Meanwhile it is not the peer that keeps others waiting."""
        self.working += 1
        self._memory.changed(self, 0)
        try:
            yield
        finally:
            self.working -= 1
            self._memory.changed(self, 0)

    def wait_for(self, *, moving: int = 0, broker: bool = False) -> None:
        """From now on a peer sends or takes a frame of so many bytes, a broker works at a request, or neither."""
        if (moving, broker) != (self.moving, self.asking_broker):
            self.moving, self.asking_broker = moving, broker
            self._memory.changed(self, 0)

    def evict(self) -> None:
        """End the connection."""
        if not self._evicted.done():
            kept = f"others need the {self.held:,} bytes that it kept waiting (gateway.queued.max.bytes)"
            self._evicted.set_exception(MemoryShortError(kept))
        self.give_back(self.held)
