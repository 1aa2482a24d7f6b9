"""Memory budget of all connections together, for frames that are read whole and for bytes that a peer has not read yet.

A frame is one request or response of Kafka's protocol. Each frame has one reservation, made before its content is read.
A location request reserves also the memory for its response. So no frame waits for memory while it holds memory, and a
frame that can never fit is refused at once. If a frame has to wait, other connections whose peers are slow are closed,
the slowest first. So a few connections that never finish a frame, or read nothing, cannot block the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import inf

_PATIENCE_SECONDS = 1.0
_PATIENCE_WITH_BROKERS_SECONDS = 30.0
_MIN_BYTES_PER_SECOND = 2 << 20  # a peer that sends or reads a frame at a lower speed counts as slow
_UNCOUNTED_BYTES = 64 << 10  # frames up to this size are not counted; most frames are smaller
_SMALL_BYTES = 1 << 20  # larger reservations leave a quarter of the budget to smaller ones


class MemoryShortError(Exception):
    """Error that closes a connection, because other connections need its memory, or because a frame needs too much.

    A frame is one request or response of Kafka's protocol.
    """


class FrameMemory:
    """Memory budget for the frames (Kafka's requests and responses) of all connections. Used from one event loop.

    Args:
        total: size of the budget, in bytes.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._released = asyncio.Event()
        self._reservations: set[Reservation] = set()

    @property
    def largest(self) -> int:
        """Return the maximum number of bytes of one reservation: three quarters of the budget."""
        return self.total - self.total // 4

    def fits(self, size: int) -> bool:
        """Return whether `size` bytes can be reserved now. Above 1 MiB, a quarter of the budget must stay free."""
        return self.used + size <= (self.total if size <= _SMALL_BYTES else self.largest)

    @asynccontextmanager
    async def reserve(self, connection: asyncio.Future[None], size: int, moving: int = 0) -> AsyncIterator[Reservation]:
        """Wait until `size` bytes are reserved for a frame, and release them when the context ends.

        A frame of up to 64 KiB is not counted, and does not wait.

        Args:
            connection: future of the frame's connection. Its exception becomes a MemoryShortError if the connection
                must end, because other connections need its memory.
            moving: number of bytes that the peer will send or read. The connection counts as slow after 1 s, plus the
                time that these bytes take at 2 MiB/s.

        Raises:
            MemoryShortError: `size` is larger than any reservation may be.
        """
        reservation = Reservation(self, connection)
        if size > self.largest:
            raise MemoryShortError(
                f"a frame needs {size:,} bytes, of {self.largest:,} at most: raise gateway.queued.max.bytes, "
                "or ask for fewer partitions at once"
            )
        if size > _UNCOUNTED_BYTES:
            while not self.fits(size):
                await self._wait_for_release(connection)
            self.change(reservation, size)
        reservation.expect_peer(moving)
        try:
            yield reservation
        finally:
            reservation.shrink(0)

    def change(self, reservation: Reservation, by: int) -> None:
        """Add `by` bytes, which may be negative, to the size of a reservation, without a check of the budget.

        Only this module calls it.
        """
        self.used += by
        reservation.size += by
        if reservation.size:
            self._reservations.add(reservation)
        else:
            self._reservations.discard(reservation)
        if by < 0:
            self._released.set()

    async def _wait_for_release(self, connection: asyncio.Future[None]) -> None:
        """Evict the slowest of the other connections if it counts as slow, else wait at most 1 s for released memory.

        `connection` is the future of the connection that waits.
        """
        others = (reservation for reservation in self._reservations if reservation.connection is not connection)
        slowest = min(others, key=lambda reservation: reservation.slow_from, default=None)
        seconds = slowest.slow_from - time.monotonic() if slowest else inf
        if slowest is not None and seconds <= 0:
            slowest.evict()
            return
        self._released.clear()
        # Not `asyncio.wait_for`: in Python 3.11 it loses a cancellation that arrives together with the awaited result.
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _PATIENCE_SECONDS)):
                await self._released.wait()


class Reservation:
    """Part of the memory budget that one frame holds: `size` bytes.

    `slow_from` is the time (`monotonic`) from which the frame's connection counts as slow, and may be evicted.
    """

    def __init__(self, memory: FrameMemory, connection: asyncio.Future[None]) -> None:
        self._memory = memory
        self.connection = connection
        self.size = 0
        self.slow_from = inf

    def extend(self, size: int) -> int:
        """Reserve up to `size` more bytes without waiting, and return how many were reserved, which may be 0.

        The additional bytes are at most a quarter of the budget, and leave half of the budget free.
        """
        free = min(self._memory.total // 2 - self._memory.used, self._memory.total // 4)
        added = max(0, min(size, free))
        self._memory.change(self, added)
        return added

    def shrink(self, size: int) -> None:
        """Release all but `size` bytes. If the reservation is not larger than `size`, it does not change."""
        self._memory.change(self, min(0, size - self.size))

    def expect_peer(self, moving: int = 0) -> None:
        """Let the connection count as slow after 1 s, plus the time that `moving` bytes take at 2 MiB/s.

        Call it when the connection starts to wait for its client, or for bytes from the broker.
        """
        self.slow_from = time.monotonic() + _PATIENCE_SECONDS + moving / _MIN_BYTES_PER_SECOND

    def expect_broker(self) -> None:
        """Let the connection count as slow after 30 s.

        Call it when a broker starts to work on the request.
        """
        self.slow_from = time.monotonic() + _PATIENCE_WITH_BROKERS_SECONDS

    def expect_gateway(self) -> None:
        """Let the connection never count as slow, until another method sets a time.

        Call it when the gateway itself starts to work on the request.
        """
        self.slow_from = inf

    def evict(self) -> None:
        """Make the connection end with MemoryShortError, and release the whole reservation."""
        if not self.connection.done():
            reason = f"other connections need the {self.size:,} bytes that it kept waiting (gateway.queued.max.bytes)"
            self.connection.set_exception(MemoryShortError(reason))
        self.shrink(0)
