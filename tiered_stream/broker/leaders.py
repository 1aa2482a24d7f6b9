"""One request about many partitions, sent to their leaders, again until each has answered or time is up."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import PartitionMetadata
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.faults import answer_fault, code_name, is_retriable, is_unknown
from tiered_stream.errors import BrokerUnavailableError, CorruptDataError
from tiered_stream.model import TopicPartition

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")

Leaders = Mapping[TopicPartition, PartitionMetadata]


class LeaderRequest(ABC, Generic[A]):
    """A request that is answered partition by partition, by each one's leader."""

    needed_acl: str
    """What the user needs to be allowed, for the error that says so."""

    @abstractmethod
    def message(self, leaders: Leaders) -> Any:
        """A new request message for these partitions, all of one leader."""

    @abstractmethod
    def answers(self, response: Any) -> Iterable[tuple[TopicPartition, int, A]]:
        """Of each partition in the response: which, its error code, its answer."""

    def subject(self, partition: TopicPartition) -> str:
        """The partition and what was asked of it, for an error."""
        return f"partition {partition}"


async def ask_leaders(
    client: BrokerClient, request: LeaderRequest[A], partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, A]:
    """Every partition's answer; one request to each leader at a time, leaders at once. Runs on the network thread.

    Errors that may pass (a leader that moved, a lost connection) are tried again with new metadata.

    Raises:
        UnknownTopicError, BrokerAuthorizationError, OffsetOutOfRangeError, BrokerError: the brokers say so.
        BrokerUnavailableError: a partition had no answer when the time was up; names it and the last reason.
    """
    answered: dict[TopicPartition, A] = {}
    reasons = dict.fromkeys(partitions, "")
    attempt = 0
    while reasons:
        if attempt and not deadline.remaining_ms:
            raise _unavailable(request, reasons, deadline)
        by_node = _by_leader(await client.leaders(reasons, deadline, refresh=attempt > 0), reasons)
        rounds = [partial(ask_node, client, request, node, leaders, deadline) for node, leaders in by_node.items()]
        for found, retry in await client.together(rounds):
            answered.update(found)
            reasons.update(retry)
        reasons = {partition: reason for partition, reason in reasons.items() if partition not in answered}
        if reasons:
            await client.back_off(attempt, deadline)
        attempt += 1
    return answered


async def ask_node(
    client: BrokerClient, request: LeaderRequest[A], node_id: int, leaders: Leaders, deadline: Deadline
) -> tuple[dict[TopicPartition, A], dict[TopicPartition, str]]:
    """One attempt at one broker: the answers, and of partitions without one the reason. Raises as `ask_leaders`."""
    try:
        response = await client.request(node_id, request.message(leaders), deadline)
    except BrokerUnavailableError as error:
        return {}, {partition: str(error) for partition in leaders}
    found: dict[TopicPartition, A] = {}
    retry = dict.fromkeys(leaders, "left out of the answer")
    for partition, error_code, answer in request.answers(response):
        if partition not in leaders:
            raise CorruptDataError(f"broker {node_id} answered for partition {partition}, which was not asked for")
        if error_code == 0:
            found[partition] = answer
        elif is_retriable(error_code):
            retry[partition] = code_name(error_code)
            if is_unknown(error_code):  # its reason is in the broker's log alone
                log.warning("%s: broker %s answered %s, and is asked again",
                            request.subject(partition), node_id, code_name(error_code))  # fmt: skip
        else:
            raise answer_fault(error_code, request.subject(partition), request.needed_acl)
    return found, {partition: reason for partition, reason in retry.items() if partition not in found}


def _by_leader(
    leaders: Leaders, reasons: dict[TopicPartition, str]
) -> dict[int, dict[TopicPartition, PartitionMetadata]]:
    """The partitions by their leader; notes of those without one that this is so."""
    by_node: dict[int, dict[TopicPartition, PartitionMetadata]] = defaultdict(dict)
    for partition, metadata in leaders.items():
        if metadata.leader_id < 0:
            reasons[partition] = "the partition has no leader"
        else:
            by_node[metadata.leader_id][partition] = metadata
    return by_node


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions as requests want them: under their topics, in order."""
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition)
    return topics


def _unavailable(
    request: LeaderRequest[A], reasons: Mapping[TopicPartition, str], deadline: Deadline
) -> BrokerUnavailableError:
    partition, reason = min(reasons.items())
    others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return BrokerUnavailableError(
        f"{request.subject(partition)}{others}: no answer from its leader within {deadline.timeout_ms} ms; "
        f"last: {reason or 'no attempt was made'}"
    )
