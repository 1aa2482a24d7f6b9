"""A client that means well: how long it waits, while others attack."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

ROUNDS_A_CONNECTION = 25


@dataclass
class Waits:
    """Seconds of each request, those apart that had to connect and to log in first."""

    requests: list[float] = field(default_factory=list)
    first_requests: list[float] = field(default_factory=list)


def quantile(waits: list[float], share: float) -> float:
    ordered = sorted(waits)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class HonestClient:
    """Lists a topic and asks where its segments are, with a new connection now and then.

    Raises AssertionError (all methods): an answer is not the one that it should be.
    """

    def __init__(self, properties: Mapping[str, str], partition: TopicPartition, end: int, segments: int) -> None:
        self._properties = properties
        self._partition = partition
        self._wanted = {partition: OffsetRange(0, end)}
        self._segments = segments

    def ask(self, rounds: int) -> Waits:
        """So many times."""
        waits = Waits()
        for _ in range(max(1, rounds // ROUNDS_A_CONNECTION)):
            self._connection(min(rounds, ROUNDS_A_CONNECTION), waits)
        return waits

    def ask_for(self, seconds: float) -> Waits:
        """So long."""
        waits, until = Waits(), time.monotonic() + seconds
        while time.monotonic() < until:
            self._connection(ROUNDS_A_CONNECTION, waits)
        return waits

    def _connection(self, rounds: int, waits: Waits) -> None:
        with BrokerClient(self._properties) as client:
            for number in range(rounds):
                into = waits.requests if number else waits.first_requests
                # A locator of its own each time: it keeps what it has heard.
                locator = BrokerLocator(client, IsolationLevel.READ_COMMITTED, part_bytes=1 << 30)
                began = time.perf_counter()
                assert self._partition.topic in client.metadata([self._partition.topic])
                listed = time.perf_counter()
                located = locator.locate(self._wanted)
                into += [listed - began, time.perf_counter() - listed]
                assert len(located[self._partition]) == self._segments
