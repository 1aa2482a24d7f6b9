"""A client that means well, while others attack."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

ROUNDS_A_CONNECTION = 25


class HonestClient:
    """Lists a topic and asks where its segments are, with a new connection now and then."""

    def __init__(self, properties: Mapping[str, str], partition: TopicPartition, end: int, segments: int) -> None:
        self._properties = {**properties, "default.api.timeout.ms": "600000"}
        self._partition = partition
        self._wanted = {partition: OffsetRange(0, end)}
        self._segments = segments

    def ask(self, connections: int) -> None:
        """Ask `ROUNDS_A_CONNECTION` times on each of so many connections.

        Raises AssertionError: an answer is not the one that it should be.
        """
        for _ in range(connections):
            with BrokerClient(self._properties) as client:
                for _ in range(ROUNDS_A_CONNECTION):
                    # A locator of its own each time: it keeps what it has heard.
                    locator = BrokerLocator(client, IsolationLevel.READ_COMMITTED, part_bytes=1 << 30)
                    assert self._partition.topic in client.metadata([self._partition.topic])
                    assert len(locator.locate(self._wanted)[self._partition]) == self._segments
