"""Leader epochs of partitions and the epochs' end offsets: requests to leaders, and a cache of the responses.

The requests are Kafka's OffsetForLeaderEpoch (KIP-101, KIP-320). An end offset is requested again only after the
partition's leader has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.leader_requests import LeaderRequest, ask_each_leader
from tiered_stream.errors import TieredStreamError
from tiered_stream.model import PartialAnswer, TopicPartition

_CONSUMER = -1
NO_EPOCH = -1
END_OF_LOG = (1 << 63) - 1

Lineage = Mapping[int, int]
"""The leader epochs of a log, with the end offset (exclusive) of each epoch.

The end is the next epoch's start, and `END_OF_LOG` for the last epoch. An epoch has one leader, so all replicas agree
at which offset it starts. Records of an epoch at or after its end are not part of the log, although a replica may have
copied them.
"""


def leader_epoch_end_offsets(
    client: BrokerClient, epochs: Mapping[TopicPartition, int], patience_ms: int | None = None
) -> PartialAnswer[TopicPartition, tuple[int, int]]:
    """Return, by partition, the leader's largest epoch that is not above the epoch in `epochs`, and its end offset.

    The end offset is exclusive. The leader's newest epoch ends at the log end. If the epoch in `epochs` is newer than
    all epochs of the leader, the result is (-1, -1). If the epoch in `epochs` is older than all epochs of the leader,
    the result is this epoch itself. Its end is then the start offset of the leader's first epoch.

    `patience_ms` None: `default.api.timeout.ms`.

    Raises:
        BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
            exist.
    """
    request = _OffsetForLeaderEpoch(epochs)
    return client.run(lambda: ask_each_leader(client, request, epochs, patience_ms))


class _OffsetForLeaderEpoch(LeaderRequest[tuple[int, int]]):
    needed_acl = "DESCRIBE on the topic"

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._epochs = epochs

    def request(self, topics: list[Any]) -> Any:
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, min_version=2)

    def topic(self, name: str, partitions: list[Any]) -> Any:
        return OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=partitions)

    def partition(self, partition: TopicPartition, leader_epoch: int) -> Any:
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
        epoch = self._epochs[partition]
        return kind(partition=partition.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch)

    def results(self, response: Any) -> Iterable[tuple[TopicPartition, int, tuple[int, int]]]:
        for topic in response.topics or ():
            for result in topic.partitions or ():
                partition = TopicPartition(topic.topic, result.partition)
                yield partition, result.error_code, (result.leader_epoch, result.end_offset)

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, leader epoch {self._epochs[partition]}"


@dataclass(slots=True)
class _LeaderLineage:
    """Leader epochs of a partition's log, as far as `leader` (topic id, leader epoch) has reported them.

    `ends` has the end offset (exclusive) of each epoch in the leader's log. `requested` has all epochs that were
    requested, also epochs that are not in the leader's log.
    """

    leader: tuple[UUID, int]
    ends: dict[int, int] = field(default_factory=dict)
    requested: set[int] = field(default_factory=set)


class BrokerLineages:
    """Cache of partitions' lineages: the leader epochs of a partition's log, with the end offset of each epoch.

    Epochs that the cache lacks are requested from the partitions' leaders. The end of a closed epoch changes only if an
    election truncates the log, and an election raises the leader epoch. So a cached end offset stays valid until the
    leader epoch changes. Many threads may use the cache, but only one thread at a time per partition.

    Args:
        patience_ms: maximum time in ms to wait for a leader in one round of requests; None: `default.api.timeout.ms`.
    """

    def __init__(self, client: BrokerClient, patience_ms: int | None = None) -> None:
        self._client = client
        self._patience_ms = patience_ms
        self._known: dict[TopicPartition, _LeaderLineage] = {}

    def of(
        self, epochs: Mapping[TopicPartition, Collection[int]], topics: Mapping[str, TopicMetadata]
    ) -> PartialAnswer[TopicPartition, Lineage]:
        """Return by partition the end offset (exclusive) of each epoch in `epochs` that is in the partition's log.

        The end of the current epoch is `END_OF_LOG`. Only epochs that were not requested from the current leader before
        are requested. A partition's result also has all other epochs that earlier calls requested from the same leader
        (same topic id and leader epoch). If a request fails, the partition is only in `faults`, with the error.

        Args:
            epochs: leader epochs, by partition.
            topics: current metadata of the partitions' topics, by topic.

        Raises:
            BrokerError, ConfigurationError: the topics' metadata cannot be read.
        """
        known = {partition: self._of_leader(partition, topics[partition.topic]) for partition in epochs}
        remaining = {
            partition: sorted(set(numbers) - known[partition].requested) for partition, numbers in epochs.items()
        }
        faults: dict[TopicPartition, TieredStreamError] = {}
        # A request to a leader asks for only one epoch of each partition.
        while remaining := {at: numbers for at, numbers in remaining.items() if numbers and at not in faults}:
            requested = {partition: numbers.pop() for partition, numbers in remaining.items()}
            answer = leader_epoch_end_offsets(self._client, requested, self._patience_ms)
            faults.update(answer.faults)
            for partition, (epoch, end_offset) in answer.found.items():
                lineage = known[partition]
                lineage.requested.add(requested[partition])
                leads = self._leader_epoch(partition) == lineage.leader[1]
                if not leads:  # a new leader may have responded, so the next call requests all epochs again
                    self._known.pop(partition, None)
                if epoch == requested[partition]:  # otherwise none of its records is part of the log any more
                    is_current = leads and epoch == lineage.leader[1]
                    lineage.ends[epoch] = END_OF_LOG if is_current else end_offset  # the current epoch is still growing
        found: dict[TopicPartition, Lineage] = {
            partition: lineage.ends for partition, lineage in known.items() if partition not in faults
        }
        return PartialAnswer(found, faults)

    def _leader_epoch(self, partition: TopicPartition) -> int:
        """Return the partition's leader epoch in the newest metadata, which a repeated request may have renewed."""
        topic = self._client.topic(partition.topic)
        leader = topic.partitions.get(partition.partition) if topic else None
        return leader.leader_epoch if leader else NO_EPOCH

    def _of_leader(self, partition: TopicPartition, topic: TopicMetadata) -> _LeaderLineage:
        """Return the cached leader epochs that the partition's current leader has reported.

        If another leader has reported the cached epochs, or the current leader's epoch is unknown, replace the cache
        entry by an empty entry and return that.
        """
        leader = topic.topic_id, topic.partitions[partition.partition].leader_epoch
        known = self._known.get(partition)
        if known is None or known.leader != leader or leader[1] == NO_EPOCH:
            known = self._known[partition] = _LeaderLineage(leader)
        return known
