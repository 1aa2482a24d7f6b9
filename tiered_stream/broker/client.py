"""Client of one Kafka cluster. It caches metadata, and sends requests to any broker or to a given broker."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import AbstractContextManager
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from kafka.protocol.metadata import ApiVersionsRequest

from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.cluster_metadata import PartitionMetadata, TopicMetadata, metadata_request, read_topics
from tiered_stream.broker.connections import Connections, Deadline
from tiered_stream.broker.kafka_errors import AbsentBrokerError, code_name, is_retriable, response_fault
from tiered_stream.errors import BrokerError, BrokerUnavailableError, UnknownTopicError
from tiered_stream.model import NO_TOPIC_ID, TopicPartition
from tiered_stream.process.caches import PerProcess

T = TypeVar("T")

log = logging.getLogger(__name__)

PATIENCE_S = 3.0
"""Seconds without a response after which a warning names the brokers that have not responded, and the reasons."""
_MAX_COMPARED = 20_000
"""Maximum number of topics whose names are compared with the name of an unknown topic."""
_ASKED_AT_ONCE = 5
"""Maximum number of brokers that are sent the same request at once; only the first response is used."""
_UNKNOWN_TOPIC_CODE = 3  # UNKNOWN_TOPIC_OR_PARTITION
_UNKNOWN_TOPIC_GRACE_MS = 1_000  # time for which an unknown topic is requested again; brokers learn of new topics late


class BrokerClient(AbstractContextManager["BrokerClient"]):
    """Client of one Kafka cluster. Safe to share between threads; connects at the first request.

    `properties` are Kafka's client properties, by name without the `kafka.` prefix. A call ends within
    `default.api.timeout.ms`, unless its caller gives a deadline. Calls raise the errors of `tiered_stream.errors`.

    Raises:
        ConfigurationError: a property is missing, malformed or not supported.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.config = BrokerConfig.parse(properties)
        self.connections = Connections(self.config)
        """Connections to the brokers; only files in `tiered_stream/broker` use them."""
        weakref.finalize(self, _close, self.connections, os.getpid()).atexit = False
        self._topics: dict[str, tuple[float, TopicMetadata]] = {}
        self.has_met_brokers = False
        """True if a broker has responded to `meet` at its advertised address."""
        self.troubles: dict[int, str] = {}
        """Reasons why requests about partitions are being repeated, by `id` of the request.

        Only the network thread changes it.
        """
        self.cluster_id: str | None = None
        """Cluster id in the last Metadata response; None: no response yet, or the cluster has no id."""
        self.read_replicas: dict[TopicPartition, int] = {}
        """Broker ids of the replicas to fetch from, by partition, where the leader has named a replica (KIP-392).

        Only the network thread uses it.
        """

    def __repr__(self) -> str:
        return f"BrokerClient({self.config.bootstrap_servers})"

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Calls that still wait raise BrokerUnavailableError."""
        self.connections.close()

    def metadata(self, topics: Collection[str] | None = None) -> dict[str, TopicMetadata]:
        """Return current metadata of `topics` by topic; None: of all topics that the user may describe.

        No topic is created. If `topics` is None, topics with an error are left out.

        Raises:
            UnknownTopicError: a topic in `topics` does not exist.
            BrokerAuthorizationError: the login was refused, or the user is not authorized to describe a topic in
                `topics`.
            BrokerUnavailableError: within `default.api.timeout.ms`, no broker responded, or a topic in `topics` had
                only retriable errors.
            BrokerError, ConfigurationError: the same request would fail again.
        """
        return self.run(lambda: self.fetch_metadata(topics, self.deadline()))

    def ask_any_broker(self, build: Callable[[], Any]) -> Any:
        """Send a request to the brokers in turn until a broker responds, and return its response.

        `build` returns a new request message for each attempt.

        Raises:
            BrokerUnavailableError: no broker responded within `default.api.timeout.ms`.
            BrokerAuthorizationError, ConfigurationError, BrokerError: the same request would fail again.
        """
        return self.run(lambda: self.ask_any(build, self.deadline()))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `work` makes, on the network thread. Return its result or raise its error.

        If there is no result after 3 s, and addresses have not responded, log a warning with their reasons.
        """
        begin, call = time.monotonic(), self.start(work)
        if not concurrent.futures.wait([call], PATIENCE_S).done:
            troubles = dict.fromkeys(self.troubles.copy().values())  # threads may wait for the same partition
            if reasons := "; ".join(filter(None, (*troubles, self.connections.unanswered(begin)))):
                log.warning("still trying: %s", reasons)
        return call.result()

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Start the coroutine that `work` makes, on the network thread, and return a future of its result or error."""
        return self.connections.start(work)

    # The coroutines below run on the network thread.

    async def meet(self, deadline: Deadline, soon: Deadline, *, advertised: bool) -> None:
        """Wait until a server has named brokers, and then, if `advertised`, a broker at its advertised address.

        Several addresses are asked at once, so that an address which does not respond costs no time.

        Raises:
            BrokerUnavailableError: no server responded, or none named a broker, before `deadline`; if every address is
                unknown or refuses connections, no server responded before `soon`.
            BrokerAuthorizationError, ConfigurationError, BrokerError: the same request would fail again.
        """

        async def named_brokers(node_id: Any) -> Any:
            response = await self.request(node_id, metadata_request(()), deadline)
            if not response.brokers:  # the controller has not let any broker in yet (KRaft: all are fenced)
                raise BrokerUnavailableError("the Metadata response names no broker; the brokers may be starting")
            return response

        async def responds(node_id: Any) -> Any:
            return await self.request(node_id, _api_versions_request(), deadline)

        try:
            response = await self._ask_several(self.connections.nodes, named_brokers, deadline, soon)
        except AbsentBrokerError as error:
            raise AbsentBrokerError(f"{error}. Correct kafka.bootstrap.servers, or start the brokers") from error
        self.connections.update_brokers(response)
        self.cluster_id = response.cluster_id
        if not advertised:
            return
        try:
            await self._ask_several(self.connections.brokers, responds, deadline, soon)
        except AbsentBrokerError as error:
            raise BrokerUnavailableError(
                f"{error}. Correct the brokers' advertised.listeners, or this machine's names and routes: all reading "
                "goes to the addresses that the brokers advertise"
            ) from error
        self.has_met_brokers = True

    async def _ask_several(
        self,
        nodes: Callable[[], list[Any]],
        ask: Callable[[Any], Coroutine[Any, Any, Any]],
        deadline: Deadline,
        soon: Deadline,
    ) -> Any:
        """Send a request to several nodes at once, and return the first response.

        Each attempt chooses at most `_ASKED_AT_ONCE` nodes at random. Attempts are repeated until a node responds.

        Args:
            nodes: returns the ids of the nodes to choose from, at least one.
            ask: sends the request to a node, and returns the response.

        Raises:
            BrokerUnavailableError: no node responded before `deadline`; if the last attempt found all its nodes absent
                (AbsentBrokerError), no node responded before `soon`.
            BrokerAuthorizationError, ConfigurationError, BrokerError: the same request would fail again.
        """
        begin, attempt = time.monotonic(), 0
        while True:
            known = nodes()
            asked = random.sample(known, min(len(known), _ASKED_AT_ONCE))
            try:
                return await self.connections.first([partial(ask, node_id) for node_id in asked])
            except BrokerUnavailableError as error:
                limit = soon if isinstance(error, AbsentBrokerError) else deadline
                if not limit.remaining_ms:
                    raise self._nobody_responded(error, begin, limit) from error
            await self.back_off(attempt, limit)
            attempt += 1

    def _nobody_responded(
        self, last: BrokerUnavailableError, since: float, deadline: Deadline
    ) -> BrokerUnavailableError:
        """Return the error for a request that no broker has responded to; its class is the class of `last`.

        `last` is the error of the last attempt. `since` is the time of the first attempt (`time.monotonic`).
        """
        servers = f"kafka.bootstrap.servers = {self.config.bootstrap_servers!r}"
        reasons = self.connections.unanswered(since) or str(last)
        if isinstance(last, AbsentBrokerError):
            return AbsentBrokerError(f"{servers}: no broker can be reached: {reasons}")
        return BrokerUnavailableError(
            f"{servers}: no broker responded within {deadline}: {reasons}. Check that the brokers are "
            f"up, that the way to them is open, and that they speak {self.config.security}"
        )

    async def request(self, node_id: int, message: Any, deadline: Deadline) -> Any:
        """Send `message` to the broker `node_id` once, and return the response.

        Raises:
            BrokerUnavailableError: no connection or no response before `deadline` or within `request.timeout.ms`.
            BrokerAuthorizationError, ConfigurationError, BrokerError: the same request would fail again.
        """
        return await self.connections.request(node_id, message, deadline)

    def deadline(self, patience_ms: int | None = None, extra_ms: int = 0) -> Deadline:
        """Return a deadline that is `patience_ms` plus `extra_ms` from now.

        If `patience_ms` is None or larger than `default.api.timeout.ms`, that property's value is used instead.
        """
        timeout_ms = self.config.api_timeout_ms
        return Deadline((timeout_ms if patience_ms is None else min(patience_ms, timeout_ms)) + extra_ms)

    async def back_off(self, attempt: int, deadline: Deadline) -> None:
        """Sleep after a failed attempt, but not beyond `deadline`. Attempt numbers begin at 0.

        After attempt 0, the sleep takes `retry.backoff.ms`. It takes twice as long after each further attempt, up to
        `retry.backoff.max.ms`, and varies by up to 20 % at random (Kafka: `ExponentialBackoff`).
        """
        longest = max(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        wait = min(self.config.retry_backoff_ms * 2 ** min(attempt, 16), longest) * random.uniform(0.8, 1.2)
        await self.connections.sleep(min(wait, deadline.remaining_ms) / 1000)

    async def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, refresh: bool = False
    ) -> dict[TopicPartition, PartitionMetadata]:
        """Return the leader of each partition, from cached metadata if possible.

        New metadata is requested if `refresh` is true, or if the cached metadata lacks a partition or is older than
        `metadata.max.age.ms`. While a partition has no leader, its `leader_id` is -1.
        """
        known = {} if refresh else self._known_leaders(partitions)
        stale = {partition.topic for partition in partitions if partition not in known}
        if not stale:
            return known
        await self.fetch_metadata(stale, deadline)
        return {partition: self._partition(partition) for partition in partitions}

    def topic(self, topic: str) -> TopicMetadata | None:
        """Return the topic's cached metadata, or None if no response has described it yet."""
        return self._topics[topic][1] if topic in self._topics else None

    def topic_id(self, topic: str) -> UUID:
        """Return the topic's id from its cached metadata; all zeros if the topic or its id is unknown."""
        metadata = self.topic(topic)
        return metadata.topic_id if metadata else NO_TOPIC_ID

    def _known_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionMetadata]:
        """Return the cached leaders of the partitions that are in metadata not older than `metadata.max.age.ms`."""
        oldest = time.monotonic() - self.config.metadata_max_age_ms / 1000
        fresh = {
            name: topic.partitions for name, (received, topic) in self._topics.copy().items() if received >= oldest
        }
        leaders = {partition: fresh.get(partition.topic, {}).get(partition.partition) for partition in partitions}
        return {partition: leader for partition, leader in leaders.items() if leader is not None}

    def _partition(self, partition: TopicPartition) -> PartitionMetadata:
        """Return the cached metadata of the partition, whose topic must be in the cache.

        Raises:
            UnknownTopicError: the topic does not have this partition.
        """
        leaders = self._topics[partition.topic][1].partitions
        if partition.partition not in leaders:
            raise UnknownTopicError(
                f"partition {partition} does not exist: topic {partition.topic!r} has {len(leaders)} partitions"
            )
        return leaders[partition.partition]

    async def fetch_metadata(self, topics: Collection[str] | None, deadline: Deadline) -> dict[str, TopicMetadata]:
        """Request metadata of `topics` (None: of all topics), cache it, and return it by topic.

        Runs on the network thread. The request is repeated until `deadline` after retriable errors, and for 1 s if the
        brokers do not know a topic. If `topics` is None, topics with an error are left out. The errors are described at
        `metadata`.
        """
        grace = Deadline(min(_UNKNOWN_TOPIC_GRACE_MS, deadline.remaining_ms))
        attempt = 0
        while True:
            response = await self.ask_any(lambda: metadata_request(topics), deadline)
            self.connections.update_brokers(response)
            self.cluster_id = response.cluster_id
            described, error_codes = read_topics(response)
            left_out = set(topics or ()) - described.keys() - error_codes.keys()
            error_codes |= dict.fromkeys(left_out, _UNKNOWN_TOPIC_CODE)
            received = time.monotonic()
            self._topics.update({topic: (received, metadata) for topic, metadata in described.items()})
            if topics is None or not error_codes:
                return described
            try:
                _check_error_codes(error_codes, grace, deadline)
            except UnknownTopicError as error:
                raise UnknownTopicError(f"{error}{await self._near_names(error_codes, deadline)}") from None
            await self.back_off(attempt, deadline)
            if not deadline.remaining_ms:
                _check_error_codes(error_codes, deadline, deadline)
            attempt += 1

    async def _near_names(self, unknown: Collection[str], deadline: Deadline) -> str:
        """Return the end of an error message about unknown topics: existing topics with similar names.

        Only topics that the user may describe are named. The result is empty if there is no such topic.
        """
        try:
            response = await self.ask_any(lambda: metadata_request(None), deadline)
        except BrokerError:
            return ""
        known = list(islice(read_topics(response)[0], _MAX_COMPARED))
        near = {name: None for topic in sorted(unknown) for name in get_close_matches(topic, known)}
        return f". Topics with a similar name: {', '.join(map(repr, near))}" if near else ""

    async def ask_any(self, build: Callable[[], Any], deadline: Deadline) -> Any:
        """Send a request to the brokers in turn until a broker responds, and return its response.

        Runs on the network thread. At least one attempt is made, and no further attempt begins after `deadline`.
        `build` returns a new request message for each attempt.
        """
        begin, attempt = time.monotonic(), 0
        reason: BrokerUnavailableError | None = None
        # Make at least one attempt, because its error is a better reason than that time is up.
        while reason is None or deadline.remaining_ms:
            for node_id in self.connections.nodes():
                if reason is not None and not deadline.remaining_ms:
                    break
                try:
                    return await self.request(node_id, build(), deadline)
                except BrokerUnavailableError as error:
                    reason = error
            await self.back_off(attempt, deadline)
            attempt += 1
        raise self._nobody_responded(BrokerUnavailableError(str(reason)), begin, deadline) from reason


def _check_error_codes(error_codes: Mapping[str, int], grace: Deadline, deadline: Deadline) -> None:
    """Raise an error if a topic's error code is permanent, or if there is no time left to try again.

    `error_codes` has the codes by topic. `grace` is the deadline for topics that the brokers do not know. `deadline` is
    the deadline for all topics with an error, and is not before `grace`.
    """
    missing = sorted(topic for topic, code in error_codes.items() if code == _UNKNOWN_TOPIC_CODE)
    for topic, code in error_codes.items():
        if code != _UNKNOWN_TOPIC_CODE and not is_retriable(code):
            raise response_fault(code, f"topic {topic!r}", "DESCRIBE on the topic")
    if missing and not grace.remaining_ms:
        raise UnknownTopicError(
            f"no such topic: {', '.join(map(repr, missing))} (Kafka: UNKNOWN_TOPIC_OR_PARTITION). Topics are never "
            "created by reading them: create it, or correct the option that names it"
        )
    if not deadline.remaining_ms:
        reasons = ", ".join(f"{topic!r}: {code_name(code)}" for topic, code in sorted(error_codes.items()))
        raise BrokerUnavailableError(f"topics not available within {deadline.timeout_ms} ms: {reasons}")


def api_versions(client: BrokerClient) -> Any:
    """Return the ApiVersions response of the first broker that responds.

    Raises:
        BrokerError: no broker responds.
    """
    return client.ask_any_broker(_api_versions_request)


def _api_versions_request() -> Any:
    return ApiVersionsRequest(client_software_name="tiered-stream", client_software_version="1")


def supported_feature(client: BrokerClient, name: str) -> int:
    """Return the newest version of the feature `name` on the first broker that responds; 0 if that broker lacks it.

    The version is from the ApiVersions response.

    Raises:
        BrokerError: no broker responds.
    """
    features = api_versions(client).supported_features or ()
    return max((feature.max_version for feature in features if feature.name == name), default=0)


_clients: PerProcess[BrokerClient] = PerProcess()


def open_client(properties: Mapping[str, str]) -> BrokerClient:
    """Return this process's client for the client properties `properties`, and create it at the first call.

    The names of the properties are without the `kafka.` prefix. Because the client is shared, Spark's Python workers
    keep their connections from task to task. The caller must not close the client. It closes itself when nothing refers
    to it any more.

    Raises:
        ConfigurationError: a property is missing, malformed or not supported.
    """
    return _clients.get(properties, lambda: BrokerClient(properties))


def _close(connections: Connections, opened_by: int) -> None:
    """Close the connections of a client that nothing refers to any more, unless this process is a fork.

    `opened_by` is the id of the process that opened the connections. A new thread closes the connections, because the
    last reference may have been on the network thread, which cannot wait for its own end.
    """
    if os.getpid() == opened_by:
        threading.Thread(target=connections.close, name="tiered-stream-close", daemon=True).start()
