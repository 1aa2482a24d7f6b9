"""Memory budget of all connections together, for frames that are read whole and for bytes that a peer has not read yet.

A request reserves all the memory that it needs, its response included, before its content is read. So no connection
holds memory while it waits for more, and a request that can never fit is refused at once. If a connection waits for
memory, connections that have held memory for more than a second only because their own peer is slow are closed, the
slowest first. So a few connections that never finish a frame, or read nothing, cannot block the others.
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
_LEAST_BYTES_A_SECOND = 2 << 20  # minimum speed at which a peer must send or read a frame, else it counts as slow
_FREE_BYTES = 64 << 10  # smaller reservations are not counted; most frames need no more
_SMALL_BYTES = 1 << 20  # larger reservations leave a quarter of the budget to smaller ones


class MemoryShortError(Exception):
    """Error that closes a connection because other connections need its memory, or because it needs too much."""


class FrameMemory:
    """Memory budget for the frames of all connections, used from one event loop.

    Args:
        total: size of the budget, in bytes.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._given_back = asyncio.Event()
        self._slow_from: dict[MemoryShare, float] = {}
        """Time (`monotonic`) from which a share counts as slow, for each share that waits for its peer."""

    @property
    def largest(self) -> int:
        """Return the maximum number of bytes of one reservation: three quarters of the budget."""
        return self.total - self.total // 4

    def share(self, evicted: asyncio.Future[None]) -> MemoryShare:
        """Return a share for a new connection, which must end when `evicted` gets its MemoryShortError."""
        return MemoryShare(self, evicted)

    def fits(self, size: int) -> bool:
        """Return whether `size` bytes can be reserved now."""
        return self.used + size <= (self.total if size <= _SMALL_BYTES else self.largest)

    def changed(self, share: MemoryShare, by: int) -> None:
        """Add `by` bytes to the used memory, and update the time from which `share` counts as slow.

        Only `MemoryShare` calls it.
        """
        self.used += by
        self._slow_from.pop(share, None)
        if share.held and not share.working:
            patience = _PATIENCE_WITH_BROKERS_SECONDS if share.asking_broker else _PATIENCE_SECONDS
            patience += share.moving / _LEAST_BYTES_A_SECOND
            self._slow_from[share] = time.monotonic() + patience
        if by < 0:
            self._given_back.set()

    async def room(self, share: MemoryShare) -> None:
        """Wait until memory is given back, or evict the slowest other share once it is overdue.

        Only `MemoryShare` calls it, in a loop.
        """
        others = ((slow_from, each) for each, slow_from in self._slow_from.items() if each is not share)
        slow_from, slowest = min(others, key=lambda other: other[0], default=(0.0, None))
        patience = slow_from - time.monotonic() if slowest else _PATIENCE_SECONDS
        if slowest is not None and patience <= 0:
            slowest.evict()
            return
        self._given_back.clear()
        # Not `asyncio.wait_for`: in Python 3.11 it loses a cancellation that arrives together with the awaited result.
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._given_back.wait()


class MemoryShare:
    """Memory that one connection holds of the budget."""

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
        """Wait until `size` bytes are reserved; return how many the caller must give back (0 for a small `size`).

        Raises:
            MemoryShortError: `size` is larger than any reservation may be.
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
        """Reserve up to `wanted` bytes without waiting; return how many. Half of the budget stays free for others."""
        free = min(self._memory.total // 2 - self._memory.used, self._memory.total // 4)
        size = max(0, min(wanted, free))
        if size:
            self._take(size)
        return size

    def _take(self, size: int) -> None:
        self.held += size
        self._memory.changed(self, size)

    def give_back(self, size: int) -> None:
        """Give back `size` bytes that `reserve` or `extend` returned."""
        size = min(size, self.held)  # a share that was evicted holds nothing
        self.held -= size
        self._memory.changed(self, -size)

    @asynccontextmanager
    async def unread(self, size: int) -> AsyncIterator[None]:
        """Reserve memory for up to `size` bytes that a peer leaves unread while the context is active.

        Both directions of a connection share one reservation.
        """
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
        """Mark the connection as busy in the gateway: while the context is active, its peer does not count as slow."""
        self.working += 1
        self._memory.changed(self, 0)
        try:
            yield
        finally:
            self.working -= 1
            self._memory.changed(self, 0)

    def wait_for(self, *, moving: int = 0, broker: bool = False) -> None:
        """Set the reason why the connection holds memory from now on, which decides when it counts as slow.

        Args:
            moving: size of the frame that a peer is sending or reading, in bytes; 0: none.
            broker: a broker is working on a request, so the patience is 30 s instead of 1 s.
        """
        if (moving, broker) != (self.moving, self.asking_broker):
            self.moving, self.asking_broker = moving, broker
            self._memory.changed(self, 0)

    def evict(self) -> None:
        """Make the connection end with MemoryShortError, and give back its memory."""
        if not self._evicted.done():
            kept = f"others need the {self.held:,} bytes that it kept waiting (gateway.queued.max.bytes)"
            self._evicted.set_exception(MemoryShortError(kept))
        self.give_back(self.held)
