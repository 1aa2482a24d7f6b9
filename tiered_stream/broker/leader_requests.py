"""Requests about many partitions, sent to the partitions' leaders and repeated until all respond or time is up."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import PartitionMetadata
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.kafka_errors import code_name, is_retriable, is_unknown, response_fault
from tiered_stream.errors import BrokerUnavailableError, CorruptDataError, TieredStreamError
from tiered_stream.model import PartialAnswer, TopicPartition

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")

Leaders = Mapping[TopicPartition, PartitionMetadata]

_NO_LEADER = "the partition has no leader"
_BEFORE = "; before that: "


class LeaderRequest(ABC, Generic[A]):
    """Base of requests to partition leaders. A response has one result per partition."""

    needed_acl: str
    """ACL that the user needs for this request, for errors."""

    def message(self, leaders: Leaders) -> Any:
        """Return a new request message for the partitions in `leaders`, which all have the same leader."""
        topics = []
        for name, partitions in by_topic(leaders).items():
            entries = [self.partition(partition, leaders[partition].leader_epoch) for partition in partitions]
            topics.append(self.topic(name, entries))
        return self.request(topics)

    @abstractmethod
    def request(self, topics: list[Any]) -> Any:
        """Return a new request message with the entries `topics`, which `topic` has returned."""

    @abstractmethod
    def topic(self, name: str, partitions: list[Any]) -> Any:
        """Return a topic's entry in a request message, with the entries of its partitions."""

    @abstractmethod
    def partition(self, partition: TopicPartition, leader_epoch: int) -> Any:
        """Return a partition's entry in a request message; `leader_epoch` is the known epoch of its leader."""

    @abstractmethod
    def results(self, response: Any) -> Iterable[tuple[TopicPartition, int, A]]:
        """Return, for each partition in the response, the partition, its error code and its result."""

    def check(self, partition: TopicPartition, result: A) -> None:
        """Raise CorruptDataError if no broker can have this result, which came without an error code."""

    def response_error(self, response: Any) -> int:
        """Return the error code of the whole response, which applies to each of its partitions; 0: there is none."""
        return 0

    def subject(self, partition: TopicPartition) -> str:
        """Return a text for errors that names the partition and the subject of the request, such as an offset."""
        return f"partition {partition}"


async def ask_leaders(
    client: BrokerClient, request: LeaderRequest[A], partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, A]:
    """Send the request to the leaders of all partitions, and return the result of every partition.

    Runs on the network thread. All leaders are asked at once, each with one request at a time. After errors that may
    pass (a leader that moved, a lost connection), the request is repeated with new metadata.

    Raises:
        UnknownTopicError, BrokerAuthorizationError, OffsetOutOfRangeError, BrokerError: a broker responded with this
            error for a partition.
        BrokerUnavailableError: a partition had no result at `deadline`; the message names the partition and the last
            reason.
    """
    return (await _ask_until(client, request, partitions, deadline, partial=False)).found


async def ask_each_leader(
    client: BrokerClient, request: LeaderRequest[A], partitions: Collection[TopicPartition], patience_ms: int | None
) -> PartialAnswer[TopicPartition, A]:
    """Send the request to the leaders of all partitions, and return for each partition a result or an error.

    Runs on the network thread. Unlike in `ask_leaders`, an error of one partition does not stop the requests for other
    partitions. `patience_ms` is the time limit; None: `default.api.timeout.ms`. If `patience_ms` is given, a partition
    that has no leader at the second attempt gets an error, and is not requested again.

    Raises:
        BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
            exist.
    """
    deadline = client.deadline(patience_ms)
    return await _ask_until(client, request, partitions, deadline, partial=True, await_leaders=patience_ms is None)


async def _ask_until(
    client: BrokerClient,
    request: LeaderRequest[A],
    partitions: Collection[TopicPartition],
    deadline: Deadline,
    *,
    partial: bool,
    await_leaders: bool = True,
) -> PartialAnswer[TopicPartition, A]:
    """Repeat the request until each partition has a result or an error, and return the results and errors.

    If `partial` is false, the first error is raised. If `await_leaders` is false, a partition that has no leader at the
    second attempt gets an error.
    """
    answer: PartialAnswer[TopicPartition, A] = PartialAnswer({}, {})
    reasons = dict.fromkeys(partitions, "")
    attempt = 0
    try:
        while reasons:
            attempted = await _ask_once(client, request, reasons, deadline, refresh=attempt > 0)
            if attempted.faults and not partial:
                raise attempted.faults[min(attempted.faults)]
            answer.found.update(attempted.results)
            answer.faults.update(attempted.faults)
            reasons = _joined(attempted.retry_reasons, reasons)
            if reasons:
                client.troubles[id(request)] = _first(request, reasons)
                await client.back_off(attempt, deadline)
            late, give_up = not deadline.remaining_ms, attempt and not await_leaders
            if late and reasons and not partial:
                raise _unavailable(request, reasons, deadline)
            for partition, reason in attempted.retry_reasons.items():
                if late or (give_up and reason == _NO_LEADER):
                    answer.faults[partition] = _unavailable(request, {partition: reasons.pop(partition)}, deadline)
            attempt += 1
    finally:
        client.troubles.pop(id(request), None)
    return answer


@dataclass(slots=True)
class NodeResults(Generic[A]):
    """Outcome of one request for each partition: a result, a permanent error, or the reason to repeat the request."""

    results: dict[TopicPartition, A] = field(default_factory=dict)
    faults: dict[TopicPartition, TieredStreamError] = field(default_factory=dict)
    retry_reasons: dict[TopicPartition, str] = field(default_factory=dict)

    def add_error(self, request: LeaderRequest[A], partition: TopicPartition, error_code: int, node_id: int) -> None:
        """Add a partition's error code to `retry_reasons` if the same request may succeed later, otherwise to `faults`.

        UNKNOWN_SERVER_ERROR, and codes that kafka-python does not know, are also logged. `node_id` is the id of the
        broker that responded with the error code.
        """
        if is_retriable(error_code):
            self.retry_reasons[partition] = code_name(error_code)
            if is_unknown(error_code):  # only the broker's log has the reason
                log.warning("%s: broker %s responded with %s; the request is repeated",
                            request.subject(partition), node_id, code_name(error_code))  # fmt: skip
        else:
            self.faults[partition] = response_fault(error_code, request.subject(partition), request.needed_acl)


async def ask_node(
    client: BrokerClient, request: LeaderRequest[A], node_id: int, leaders: Leaders, deadline: Deadline
) -> NodeResults[A]:
    """Send the request to the broker `node_id` once, and return the outcome for each partition in `leaders`.

    An outcome is a result, a permanent error, or a reason to repeat the request (`NodeResults`). An error of the
    request or of the whole response becomes the outcome of each partition, and is not raised.
    """
    try:
        response = await client.request(node_id, request.message(leaders), deadline)
    except BrokerUnavailableError as error:
        return NodeResults(retry_reasons=dict.fromkeys(leaders, str(error)))
    except TieredStreamError as error:
        return NodeResults(faults=dict.fromkeys(leaders, error))
    outcome: NodeResults[A] = NodeResults()
    if error_code := request.response_error(response):
        for partition in leaders:
            outcome.add_error(request, partition, error_code, node_id)
        return outcome
    outcome.retry_reasons.update(dict.fromkeys(leaders, "missing in the response"))
    for partition, error_code, result in request.results(response):
        if partition not in leaders:
            wrong = CorruptDataError(f"broker {node_id} responded for partition {partition}, which was not requested")
            return NodeResults(faults=dict.fromkeys(leaders, wrong))
        outcome.retry_reasons.pop(partition, None)
        if error_code:
            outcome.add_error(request, partition, error_code, node_id)
            continue
        try:
            request.check(partition, result)
        except CorruptDataError as error:
            outcome.faults[partition] = error
        else:
            outcome.results[partition] = result
    return outcome


async def _ask_once(
    client: BrokerClient,
    request: LeaderRequest[A],
    partitions: Collection[TopicPartition],
    deadline: Deadline,
    *,
    refresh: bool,
) -> NodeResults[A]:
    """Send the request once to the leaders of all partitions concurrently, and return the outcome of each partition.

    An outcome is a result, a permanent error, or a reason to repeat the request (`NodeResults`). If `refresh` is true,
    new metadata is requested first. A partition without a leader is in `retry_reasons`.
    """
    leaders = await client.leaders(partitions, deadline, refresh=refresh)
    by_node: dict[int, dict[TopicPartition, PartitionMetadata]] = defaultdict(dict)
    attempted: NodeResults[A] = NodeResults()
    for partition, metadata in leaders.items():
        if metadata.leader_id < 0:
            attempted.retry_reasons[partition] = _NO_LEADER
        else:
            by_node[metadata.leader_id][partition] = metadata
    requests = [partial(ask_node, client, request, node, led, deadline) for node, led in by_node.items()]
    for outcome in await client.connections.gather(requests):
        attempted.results.update(outcome.results)
        attempted.faults.update(outcome.faults)
        attempted.retry_reasons.update(outcome.retry_reasons)
    return attempted


def _joined(reasons: Mapping[TopicPartition, str], earlier: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """Return by partition a text: the newest reason to repeat the request, and the last earlier reason that differs.

    The earlier reason is kept, because the newest reason may only say that time ran out.

    Args:
        reasons: newest reasons, by partition.
        earlier: results of this function after the previous attempt; an empty text: there was no previous attempt.
    """
    joined: dict[TopicPartition, str] = {}
    for partition, reason in reasons.items():
        last = earlier[partition].partition(_BEFORE)[0]
        joined[partition] = earlier[partition] if last == reason else reason + (_BEFORE + last if last else "")
    return joined


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions grouped by topic, as Kafka's requests have them; topics and partitions are sorted."""
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition)
    return topics


def _unavailable(
    request: LeaderRequest[A], reasons: Mapping[TopicPartition, str], deadline: Deadline
) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"{_first(request, reasons, f'no response from its leader within {deadline.timeout_ms} ms; last: ')}"
    )


def _first(request: LeaderRequest[A], reasons: Mapping[TopicPartition, str], before: str = "") -> str:
    """Return an error text that names the first partition in `reasons`, the number of other partitions, and the reason.

    `reasons` has by partition the reason to repeat the request. `before` is a text to insert before the reason.
    """
    partition, reason = min(reasons.items())
    others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{request.subject(partition)}{others}: {before}{reason or 'no attempt was made'}"
