from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from typing import cast

import pytest

from tests.gateway.requests import location_fetch
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.locations.location_responses import LocationResponses
from tiered_stream.gateway.locations.location_workers import LocationWorkers, RecentWork
from tiered_stream.gateway.protocol.frames import request_head
from tiered_stream.gateway.protocol.location_requests import TopicIdPartition, location_request

WORK_SECONDS = 0.3


class Responses:
    """Locations whose log ends are known after some work."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def log_ends(self, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        self._work()
        return {}


def compute() -> None:
    until = time.thread_time() + WORK_SECONDS
    while time.thread_time() < until:
        pass


def wait() -> None:
    threading.Event().wait(WORK_SECONDS)


@pytest.mark.parametrize(("work", "counted"), [(compute, True), (wait, False)])
def test_work_counts_against_a_client_by_its_cpu_time_not_by_how_long_it_waits(
    work: Callable[[], None], counted: bool
) -> None:
    workers = LocationWorkers(cast(LocationResponses, Responses(work)), GatewayMetrics())
    content = location_fetch({0: (0, 1)})
    request = location_request(request_head(content), content)
    assert request is not None
    recent_work = RecentWork()
    asyncio.run(workers.authorization(request, list(request.ranges), recent_work))
    workers.close()
    assert (recent_work.seconds() > WORK_SECONDS / 2) is counted
