"""Location requests, worked at by threads while the event loop goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from tiered_stream.errors import TieredStreamError
from tiered_stream.gateway.authorization import AuthorizationAnswer, PartitionAnswer, authorization_request
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.frames import RequestHead
from tiered_stream.gateway.location_answers import LocationAnswers
from tiered_stream.gateway.location_requests import LocationRequest, TopicIdIndex, location_request
from tiered_stream.gateway.sparse_log import Sparse
from tiered_stream.gateway.turns import Spent, Turns

log = logging.getLogger(__name__)
log.addFilter(Sparse())

T = TypeVar("T")

_THREADS, _HEAVY_THREADS = 8, 2  # in all, and for clients that have had much of late
_QUICK_BYTES = 1 << 10  # of a request that is decoded sooner than a thread is told of it
# Large requests have a thread of their own: they keep neither small ones nor, by their number, the event loop waiting.
_LARGE_BYTES = 64 << 10


class LocationWorkers:
    """What cannot be found out is left to the broker, as KIP-1248 has it: the answer then names no segment."""

    def __init__(self, answers: LocationAnswers, metrics: GatewayMetrics) -> None:
        self._answers = answers
        self._metrics = metrics
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="gateway")
        self._large_executor = ThreadPoolExecutor(1, thread_name_prefix="gateway-large")
        self._turns = Turns(_THREADS, _HEAVY_THREADS)

    async def wanted(self, head: RequestHead, content: bytes, spent: Spent) -> LocationRequest | None:
        """What the client wants; None: the Fetch goes on as it is.

        Raises:
            FrameError: the content is not a Fetch.
        """
        if len(content) <= _QUICK_BYTES:
            return location_request(head, content)
        return await self._run(lambda: location_request(head, content), len(content), spent)

    async def authorization(
        self, request: LocationRequest, may_read: Sequence[TopicIdIndex], spent: Spent
    ) -> tuple[LocationRequest, bytes] | None:
        """The request, less what cannot be located, and what asks the broker for authorization; None: nothing can be.

        Args:
            may_read: the partitions of topics that the client has shown that it may read.
        """
        return await self._run(lambda: self._authorization(request, may_read), request.size, spent)

    async def answer(self, request: LocationRequest, content: bytes, most_bytes: int, spent: Spent) -> list[bytes]:
        """The client's answer in pieces, made from the broker's; of its encoded segments at most so many bytes.

        Raises:
            FrameError: the content is not a Fetch answer.
        """
        size = max(request.size, len(content))
        return await self._run(lambda: self._answer(request, content, most_bytes), size, spent)

    def close(self) -> None:
        """Take no more work."""
        for executor in (self._executor, self._large_executor):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T], size: int, spent: Spent) -> T:
        loop = asyncio.get_running_loop()
        if size >= _LARGE_BYTES:
            return await loop.run_in_executor(self._large_executor, work)
        async with self._turns.turn(spent):
            return await loop.run_in_executor(self._executor, work)

    def _authorization(
        self, request: LocationRequest, may_read: Sequence[TopicIdIndex]
    ) -> tuple[LocationRequest, bytes] | None:
        try:
            log_ends = self._answers.log_ends(may_read)
        except TieredStreamError as error:
            log.warning("a location request is left to the broker: %s", error)
            self._metrics.partitions.labels("failed").inc(len(request.wanted))
            return None
        # Of the others it is not known where to ask: the broker answers what the client asked.
        known = {where: wanted for where, wanted in request.wanted.items() if where in log_ends}
        # They are counted by what the broker answers: one that throttles the client has refused nothing.
        return replace(request, wanted=known, asked=request.wanted.keys()), authorization_request(request, log_ends)

    def _answer(self, request: LocationRequest, content: bytes, most_bytes: int) -> list[bytes]:
        authorized = AuthorizationAnswer(request, content)
        readable = authorized.readable()
        found: dict[TopicIdIndex, PartitionAnswer] = {}
        try:
            found = self._answers.answer(request, readable, most_bytes, self._turns.others_wait)
        except TieredStreamError as error:
            log.warning("a location request is left to the broker: %s", error)
        for result, count in authorized.results(found).items():
            self._metrics.partitions.labels(result).inc(count)
        return authorized.encode(found)
