"""Thread pools that work on location requests, so that the event loop does not block, with fair turns for many clients.

The client with the least recent work goes first, and heavy clients get few threads. While other clients wait, a
client's turn ends after 50 ms. The response is then incomplete, and makes the client ask again for the rest. So a
client that asks for many segments gets several short responses.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from tiered_stream.errors import TieredStreamError
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.locations.location_responses import LocationResponses
from tiered_stream.gateway.protocol.authorization import AuthorizationResponse, PartitionResponse, authorization_request
from tiered_stream.gateway.protocol.frames import RequestHead
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdPartition, location_request
from tiered_stream.process.logs import LogRateLimit

_HEAVY_SECONDS = 0.2
_HALF_LIFE_SECONDS = 1.0


class RecentWork:
    """Counter of the CPU seconds that threads have recently worked for one client; the sum halves every second.

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
    """Queue in which clients wait for turns of work. Used from one event loop; `others_wait` may be called anywhere.

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


log = logging.getLogger(__name__)
log.addFilter(LogRateLimit())

T = TypeVar("T")

_THREADS, _HEAVY_THREADS = 8, 2  # all threads, and how many of them clients with much recent work may use
_QUICK_BYTES = 1 << 10  # a request of this size is decoded in less time than it takes to hand it to a thread
# Large requests share one thread of their own, so that they delay neither small requests nor the event loop.
_LARGE_BYTES = 64 << 10


class LocationWorkers:
    """Thread pools that decode location requests and build the responses.

    If segments cannot be located, the response has no locations, and the client reads from the broker (KIP-1248). The
    argument `recent_work` of the methods is the counter of the client's CPU seconds. Clients with less recent work go
    first.
    """

    def __init__(self, responses: LocationResponses, metrics: GatewayMetrics) -> None:
        self._responses = responses
        self._metrics = metrics
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="gateway")
        self._large_executor = ThreadPoolExecutor(1, thread_name_prefix="gateway-large")
        self._turns = Turns(_THREADS, _HEAVY_THREADS)

    async def decode(self, head: RequestHead, content: bytes, recent_work: RecentWork) -> LocationRequest | None:
        """Return the location request in the Fetch `content`, or None if the gateway must pass the Fetch on unchanged.

        Raises:
            FrameError: the content is not a Fetch.
        """
        if len(content) <= _QUICK_BYTES:
            return location_request(head, content)
        return await self._run(lambda: location_request(head, content), len(content), recent_work)

    async def authorization(
        self, request: LocationRequest, may_read: Sequence[TopicIdPartition], recent_work: RecentWork
    ) -> tuple[LocationRequest, bytes] | None:
        """Ask the brokers for log ends; return the location request and the Fetch that asks for authorization.

        The returned request has only the partitions with a known log end. Return None if the brokers cannot be asked.

        Args:
            may_read: the requested partitions of topics that the client may READ, as a broker's response has shown.
        """
        return await self._run(lambda: self._authorization(request, may_read), request.size, recent_work)

    async def response(
        self, request: LocationRequest, content: bytes, max_bytes: int, recent_work: RecentWork
    ) -> list[bytes]:
        """Return the response for the client in pieces: the broker's response with locations filled in.

        Args:
            request: location request with the partitions to locate, as `authorization` returned it.
            content: the broker's response to the Fetch that asks for authorization.
            max_bytes: number of encoded bytes after which no more segments are added.

        Raises:
            FrameError: the content is not a Fetch response.
        """
        size = max(request.size, len(content))
        return await self._run(lambda: self._response(request, content, max_bytes), size, recent_work)

    def close(self) -> None:
        """Cancel the work that has not begun. Do not wait for the threads, which end after their current work."""
        for executor in (self._executor, self._large_executor):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T], size: int, recent_work: RecentWork) -> T:
        """Call `work` in a thread, and return its result.

        Messages of 64 KiB or more share one thread. Work on a smaller message waits for the client's turn, and its CPU
        seconds are added to `recent_work`.

        Args:
            size: size of the message that `work` reads, in bytes.
        """
        loop = asyncio.get_running_loop()
        if size >= _LARGE_BYTES:
            return await loop.run_in_executor(self._large_executor, work)
        seconds = 0.0

        def metered() -> T:
            nonlocal seconds
            began = time.thread_time()
            try:
                return work()
            finally:
                seconds = time.thread_time() - began

        async with self._turns.turn(recent_work):
            try:
                return await loop.run_in_executor(self._executor, metered)
            finally:
                recent_work.add(seconds)

    def _authorization(
        self, request: LocationRequest, may_read: Sequence[TopicIdPartition]
    ) -> tuple[LocationRequest, bytes] | None:
        try:
            log_ends = self._responses.log_ends(may_read)
        except TieredStreamError as error:
            log.warning("a location request is left to the broker: %s", error)
            self._metrics.partitions.labels("failed").inc(len(request.ranges))
            return None
        # Partitions without a known log end keep the client's offset, so the broker sends what the client requested.
        known = {partition: offsets for partition, offsets in request.ranges.items() if partition in log_ends}
        # `requested` keeps all partitions: only the broker's response shows which of them are refused or throttled.
        return replace(request, ranges=known, requested=request.ranges.keys()), authorization_request(request, log_ends)

    def _response(self, request: LocationRequest, content: bytes, max_bytes: int) -> list[bytes]:
        authorized = AuthorizationResponse(request, content)
        readable = authorized.readable()
        located: dict[TopicIdPartition, PartitionResponse] = {}
        try:
            located = self._responses.locate(request, readable, max_bytes, self._turns.others_wait)
        except TieredStreamError as error:
            log.warning("a location request is left to the broker: %s", error)
        for result, count in authorized.results(located).items():
            self._metrics.partitions.labels(result).inc(count)
        return authorized.encode(located)
