"""Thread pools that work on location requests, so that the event loop does not block."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from tiered_stream.errors import TieredStreamError
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.locations.location_responses import LocationResponses
from tiered_stream.gateway.locations.turns import RecentWork, Turns
from tiered_stream.gateway.log_rate_limit import LogRateLimit
from tiered_stream.gateway.protocol.authorization import AuthorizationResponse, PartitionResponse, authorization_request
from tiered_stream.gateway.protocol.frames import RequestHead
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdPartition, location_request

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
    argument `recent_work` of the methods counts the CPU seconds of the client's requests: clients with less recent work
    go first.
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
