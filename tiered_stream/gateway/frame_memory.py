"""One budget of memory for the frames of all connections: those that are read whole, and what a peer has not taken yet.

Who needs more than is left waits for it. Meanwhile whoever has kept memory for longer than a second only because its
own peer is slow is closed, the one that kept it longest first: a few connections whose frames never end, or that read
nothing, do not keep others from theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PATIENCE_SECONDS = 1.0
_FREE_BYTES = 64 << 10  # what a connection has in any case; most frames need no more


class MemoryShortError(Exception):
    """The connection is closed because others need the memory that it keeps."""


class FrameMemory:
    """The budget. Serves one event loop.

    Args:
        total: bytes.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._given_back = asyncio.Event()
        self._waiting_for_peers: dict[MemoryShare, float] = {}  # since when; the longest first

    def share(self, evicted: asyncio.Future[None]) -> MemoryShare:
        """For one connection, which must end with MemoryShortError when `evicted` does."""
        return MemoryShare(self, evicted)

    def changed(self, share: MemoryShare, by: int) -> None:
        """For `MemoryShare` only: it holds more or less, or begins or ends some work."""
        self.used += by
        self._waiting_for_peers.pop(share, None)
        if share.held and not share.working:
            self._waiting_for_peers[share] = time.monotonic()
        if by < 0:
            self._given_back.set()

    async def room(self, share: MemoryShare) -> None:
        """For `MemoryShare` only: wait until some memory was given back."""
        oldest, since = next(
            ((each, since) for each, since in self._waiting_for_peers.items() if each is not share), (None, 0.0)
        )
        patience = since + _PATIENCE_SECONDS - time.monotonic() if oldest else _PATIENCE_SECONDS
        if oldest is not None and patience <= 0:
            oldest.evict()
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
        self.held = 0
        self.working = 0

    async def take(self, size: int, *, answer: bool = False) -> int:
        """Wait for so many bytes; how many are to be given back.

        An answer does not wait for its own connection's requests: they give nothing back before it.
        """
        if size <= _FREE_BYTES:
            return 0
        memory = self._memory
        while memory.used + size > memory.total and memory.used > (self.held if answer else 0):
            await memory.room(self)
        self.held += size
        memory.changed(self, size)
        return size

    def give_back(self, size: int) -> None:
        """What `take` has returned."""
        size = min(size, self.held)  # nothing is left to one that was evicted
        self.held -= size
        self._memory.changed(self, -size)

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

    def evict(self) -> None:
        """End the connection."""
        if not self._evicted.done():
            kept = f"others need the {self.held:,} bytes that it kept waiting (gateway.queued.max.bytes)"
            self._evicted.set_exception(MemoryShortError(kept))
        self.give_back(self.held)
