"""Location requests, worked at by threads while the event loop goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
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

log = logging.getLogger(__name__)
log.addFilter(Sparse())

T = TypeVar("T")

_THREADS = 8
# Large requests have a thread of their own: they keep neither small ones nor, by their number, the event loop waiting.
_LARGE_BYTES = 64 << 10


class LocationWorkers:
    """What cannot be found out is left to the broker, as KIP-1248 has it: the answer then names no segment."""

    def __init__(self, answers: LocationAnswers, metrics: GatewayMetrics) -> None:
        self._answers = answers
        self._metrics = metrics
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="gateway")
        self._large_executor = ThreadPoolExecutor(1, thread_name_prefix="gateway-large")

    async def authorization(self, head: RequestHead, content: bytes) -> tuple[LocationRequest | None, bytes]:
        """What the client wants, and the request for the broker's authorization; None: the Fetch goes on as it is.

        Raises:
            FrameError: the content is not a Fetch.
        """
        return await self._run(lambda: self._authorization_request(head, content), len(content))

    async def answer(self, request: LocationRequest, content: bytes) -> list[bytes]:
        """The client's answer in pieces, made from the broker's.

        Raises:
            FrameError: the content is not a Fetch answer.
        """
        began = time.perf_counter()
        answer = await self._run(lambda: self._answer(request, content), len(content))
        self._metrics.location_seconds.observe(time.perf_counter() - began)
        return answer

    def close(self) -> None:
        """Take no more work."""
        for executor in (self._executor, self._large_executor):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T], size: int) -> T:
        executor = self._executor if size < _LARGE_BYTES else self._large_executor
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    def _authorization_request(self, head: RequestHead, content: bytes) -> tuple[LocationRequest | None, bytes]:
        request = location_request(head, content)
        if request is None:
            return None, content
        try:
            log_ends = self._answers.log_ends(request)
            # Of the others it is not known where to ask: the broker answers what the client asked.
            known = {where: wanted for where, wanted in request.wanted.items() if where in log_ends}
            return replace(request, wanted=known), authorization_request(request, log_ends)
        except TieredStreamError as error:
            log.warning("a location request is left to the broker: %s", error)
            self._metrics.partitions.labels("failed").inc(len(request.wanted))
            return None, content

    def _answer(self, request: LocationRequest, content: bytes) -> list[bytes]:
        authorized = AuthorizationAnswer(request, content)
        readable = authorized.readable()
        found: dict[TopicIdIndex, PartitionAnswer] = {}
        try:
            found = self._answers.answer(request, readable)
        except TieredStreamError as error:
            log.warning("a location request is left to the broker: %s", error)
        self._metrics.partitions.labels("answered").inc(len(found))
        self._metrics.partitions.labels("failed").inc(len(readable) - len(found))
        self._metrics.partitions.labels("refused").inc(len(request.wanted) - len(readable))
        return authorized.encode(found)
