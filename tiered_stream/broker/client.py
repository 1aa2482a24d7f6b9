"""The broker client: metadata, and requests to any broker or to partitions' leaders, retried until a deadline."""

from __future__ import annotations

import concurrent.futures
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from kafka.protocol.metadata import ApiVersionsRequest

from tiered_stream.broker.cluster_metadata import PartitionMetadata, TopicMetadata, metadata_request, read_topics
from tiered_stream.broker.config.client_properties import BrokerConfig
from tiered_stream.broker.connections import Connections, Deadline
from tiered_stream.broker.faults import answer_fault, code_name, is_retriable
from tiered_stream.errors import BrokerUnavailableError, UnknownTopicError
from tiered_stream.model import TopicPartition
from tiered_stream.process import PerProcess

T = TypeVar("T")

_UNKNOWN_TOPIC_CODE = 3  # UNKNOWN_TOPIC_OR_PARTITION
_QUESTIONS = 4
"""What a query asks of topics, again and again: whether there are more, its own, and the metadata topic."""
_UNKNOWN_TOPIC_GRACE_MS = 1_000  # a topic made a moment ago is not known to every broker at once


class BrokerClient:
    """Talks to one Kafka cluster. Safe to share between threads; connects when first asked.

    `properties` are Kafka's client properties without the `kafka.` prefix. Every call ends within
    `default.api.timeout.ms`, with an error of `tiered_stream.errors`.

    Raises:
        ConfigurationError: a property is missing, malformed or asks for what is not supported.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.config = BrokerConfig.parse(properties)
        self._connections = Connections(self.config)
        weakref.finalize(self, _close, self._connections, os.getpid()).atexit = False
        self._described: deque[tuple[Any, tuple[dict[str, TopicMetadata], dict[str, int]]]] = deque(maxlen=_QUESTIONS)
        self._topics: dict[str, tuple[float, TopicMetadata]] = {}
        self.cluster_id: str | None = None
        """As the brokers last told it; None: not asked yet, or they have none."""
        self.read_replicas: dict[TopicPartition, int] = {}
        """Brokers to fetch from in a leader's stead, as leaders told us (KIP-392). Of the network thread."""

    def __repr__(self) -> str:
        return f"BrokerClient({self.config.bootstrap_servers})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; calls under way fail with BrokerUnavailableError."""
        self._connections.close()

    def metadata(self, topics: Collection[str] | None = None) -> dict[str, TopicMetadata]:
        """The topics as the brokers know them now; None: all that the user may see. No topic is ever created.

        Raises:
            UnknownTopicError: a named topic does not exist.
            BrokerAuthorizationError: the login was refused, or a named topic may not be described.
            BrokerUnavailableError: no broker answered in time.
        """
        return self.run(lambda: self.fetch_metadata(topics, self.deadline()))

    def ask_any_broker(self, build: Callable[[], Any]) -> Any:
        """The response of whichever broker answers first to a request made by `build` (anew for each attempt).

        Raises: as `metadata`, without UnknownTopicError.
        """
        return self.run(lambda: self.ask_any(build, self.deadline()))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the network thread and waits for its result."""
        return self._connections.run(work)

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Runs a coroutine on the network thread while the caller goes on."""
        return self._connections.start(work)

    # What follows runs on the network thread.

    async def together(self, works: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        """Runs coroutines at once; their results in order."""
        return await self._connections.together(works)

    async def request(self, node_id: int, message: Any, deadline: Deadline) -> Any:
        """One attempt at one broker; raises as `Connections.request`."""
        return await self._connections.request(node_id, message, deadline)

    def deadline(self, patience_ms: int | None = None, extra_ms: int = 0) -> Deadline:
        """`default.api.timeout.ms` from now, or `patience_ms` where that is less, and `extra_ms`."""
        timeout_ms = self.config.api_timeout_ms
        return Deadline((timeout_ms if patience_ms is None else min(patience_ms, timeout_ms)) + extra_ms)

    async def back_off(self, attempt: int, deadline: Deadline) -> None:
        """Sleeps before attempt number `attempt` + 2 (Kafka: `ExponentialBackoff` with 20 % jitter)."""
        longest = max(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        wait = min(self.config.retry_backoff_ms * 2 ** min(attempt, 16), longest) * random.uniform(0.8, 1.2)
        await self._connections.pause(min(wait, deadline.remaining_ms) / 1000)

    async def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, refresh: bool = False
    ) -> dict[TopicPartition, PartitionMetadata]:
        """Who leads each partition, as last heard; asked anew after `metadata.max.age.ms` or with `refresh`.

        A partition that was not heard of may be new: it is asked for before it is believed not to be there.

        Raises: as `metadata`, and UnknownTopicError for a partition that its topic does not have.
        """
        known = {} if refresh else self._known_leaders(partitions)
        stale = {each.topic for each in partitions if each not in known}
        if not stale:
            return known
        await self.fetch_metadata(stale, deadline)
        return {partition: self._partition(partition) for partition in partitions}

    async def expect_topic(self, topic: str, topic_id: UUID, deadline: Deadline) -> None:
        """Ask for the topic anew where it was last heard of with another id: it may have been made again since.

        Raises: as `metadata`.
        """
        known = self.topic(topic)
        if known is not None and known.topic_id != topic_id:
            await self.fetch_metadata([topic], deadline)

    def topic(self, topic: str) -> TopicMetadata | None:
        """A topic as last heard of."""
        return self._topics[topic][1] if topic in self._topics else None

    def _known_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionMetadata]:
        """Of those partitions that were heard of, and lately."""
        oldest = time.monotonic() - self.config.metadata_max_age_ms / 1000
        lately = {name: topic.partitions for name, (heard, topic) in self._topics.items() if heard >= oldest}
        found = ((each, lately.get(each.topic, {}).get(each.partition)) for each in partitions)
        return {partition: known for partition, known in found if known is not None}

    def _partition(self, partition: TopicPartition) -> PartitionMetadata:
        known = self._topics[partition.topic][1].partitions
        if partition.partition not in known:
            raise UnknownTopicError(
                f"partition {partition} does not exist: topic {partition.topic!r} has {len(known)} partitions"
            )
        return known[partition.partition]

    async def fetch_metadata(self, topics: Collection[str] | None, deadline: Deadline) -> dict[str, TopicMetadata]:
        """What `metadata` does."""
        grace = Deadline(min(_UNKNOWN_TOPIC_GRACE_MS, deadline.remaining_ms))
        attempt = 0
        while True:
            response = await self.ask_any(lambda: metadata_request(topics), deadline)
            self._connections.learn(response)
            self.cluster_id = response.cluster_id
            found, error_codes = self._read_topics(response)
            heard = time.monotonic()
            self._topics.update({topic: (heard, metadata) for topic, metadata in found.items()})
            if topics is None or not error_codes:
                return found
            _raise_hopeless(error_codes, grace, deadline)
            await self.back_off(attempt, deadline)
            if not deadline.remaining_ms:
                _raise_hopeless(error_codes, deadline, deadline)
            attempt += 1

    def _read_topics(self, response: Any) -> tuple[dict[str, TopicMetadata], dict[str, int]]:
        """As `read_topics`; a response that is given again was read before."""
        known = next((read for before, read in self._described if before is response), None)
        if known is None:
            known = read_topics(response)
            self._described.append((response, known))
        found, error_codes = known
        return dict(found), error_codes

    async def ask_any(self, build: Callable[[], Any], deadline: Deadline) -> Any:
        attempt = 0
        reason: BrokerUnavailableError | None = None
        # One attempt in any case: what the brokers have said before is a better reason than that time is up.
        while reason is None or deadline.remaining_ms:
            for node_id in self._connections.nodes():
                if reason is not None and not deadline.remaining_ms:
                    break
                try:
                    return await self.request(node_id, build(), deadline)
                except BrokerUnavailableError as error:
                    reason = error
            await self.back_off(attempt, deadline)
            attempt += 1
        raise BrokerUnavailableError(
            f"kafka.bootstrap.servers = {self.config.bootstrap_servers!r}: no broker answered within "
            f"{deadline}; last: {reason}. Are the brokers up, and is "
            f"{self.config.security} what they speak there?"
        ) from reason


def _raise_hopeless(error_codes: Mapping[str, int], grace: Deadline, deadline: Deadline) -> None:
    """Raises unless every error may pass in the time left."""
    missing = sorted(topic for topic, code in error_codes.items() if code == _UNKNOWN_TOPIC_CODE)
    for topic, code in error_codes.items():
        if code != _UNKNOWN_TOPIC_CODE and not is_retriable(code):
            raise answer_fault(code, f"topic {topic!r}", "DESCRIBE on the topic")
    if missing and not grace.remaining_ms:
        raise UnknownTopicError(
            f"no such topic: {', '.join(map(repr, missing))} (Kafka: UNKNOWN_TOPIC_OR_PARTITION). Topics are never "
            "created by reading them: create it, or correct the option that names it"
        )
    if not deadline.remaining_ms:
        reasons = ", ".join(f"{topic!r}: {code_name(code)}" for topic, code in sorted(error_codes.items()))
        raise BrokerUnavailableError(f"topics not available within {deadline.timeout_ms} ms: {reasons}")


_FIRST_WITH_FEATURES = 3


def supported_feature(client: BrokerClient, name: str) -> int:
    """The newest version of the feature that the broker which answers first supports; 0: it does not know it.

    Raises:
        BrokerError: no broker answers.
    """
    response = client.ask_any_broker(
        lambda: ApiVersionsRequest(client_software_name="tiered-stream", client_software_version="1")
    )
    if response.API_VERSION < _FIRST_WITH_FEATURES:
        return 0
    return max(
        (feature.max_version for feature in response.supported_features or () if feature.name == name), default=0
    )


_clients: PerProcess[BrokerClient] = PerProcess()


def open_client(properties: Mapping[str, str]) -> BrokerClient:
    """The process's client for these properties, so that Spark's Python workers keep their connections.

    It is never closed by its user, but when nobody has it any more.

    Raises:
        ConfigurationError: as `BrokerClient`.
    """
    return _clients.get(properties, lambda: BrokerClient(properties))


def _close(connections: Connections, opened_by: int) -> None:
    """Those of a client that nobody has any more; they are not a forked process's to close.

    In a thread of their own: who had the client last may be their network thread, which cannot wait for its own end.
    """
    if os.getpid() == opened_by:
        threading.Thread(target=connections.close, name="tiered-stream-close", daemon=True).start()
