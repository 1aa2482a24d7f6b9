"""Cache of partitions' lineages: the end offset of each leader epoch, as the partition's leader has reported it.

An end offset is requested again only after the partition's leader has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.leader_epochs import NO_EPOCH, lineages
from tiered_stream.locate.lineage import END_OF_LOG, Lineage
from tiered_stream.model import PartialAnswer, TopicPartition


@dataclass(slots=True)
class _LeaderLineage:
    """Part of a partition's lineage that `leader` (topic id, leader epoch) has reported.

    `ends` has end offsets by epoch. `requested` are all epochs that were requested; `ends` lacks epochs that are not in
    the leader's lineage.
    """

    leader: tuple[UUID, int]
    ends: dict[int, int] = field(default_factory=dict)
    requested: set[int] = field(default_factory=set)


class BrokerLineages:
    """Cache of partitions' lineages, which requests leader epochs that it does not have from the partitions' leaders.

    The end of a closed epoch changes only if an election truncates the log, and an election raises the leader epoch. So
    a cached end offset stays valid until the leader epoch changes. Many threads may use the cache, but only one thread
    at a time per partition.

    Args:
        patience_ms: maximum time in ms to wait for a leader; None: `default.api.timeout.ms`.
    """

    def __init__(self, client: BrokerClient, patience_ms: int | None = None) -> None:
        self._client = client
        self._patience_ms = patience_ms
        self._known: dict[TopicPartition, _LeaderLineage] = {}

    def of(
        self, epochs: Mapping[TopicPartition, Collection[int]], topics: Mapping[str, TopicMetadata]
    ) -> PartialAnswer[TopicPartition, Lineage]:
        """Return by partition the end offset (exclusive) of each epoch in `epochs` that is in the partition's lineage.

        The end of the current epoch is `END_OF_LOG`. Only epochs that were not requested from the current leader before
        are requested. A partition's result also has all other epochs that earlier calls requested from the same leader
        (same topic id and leader epoch). If a request fails, the partition is only in `faults`, with the error.

        Args:
            epochs: leader epochs, by partition.
            topics: current metadata of the partitions' topics, by topic.

        Raises: the errors of `leader_epochs.lineages`.
        """
        known = {partition: self._of_leader(partition, topics[partition.topic]) for partition in epochs}
        unknown = {partition: set(numbers) - known[partition].requested for partition, numbers in epochs.items()}
        unknown = {partition: numbers for partition, numbers in unknown.items() if numbers}
        answer = lineages(self._client, unknown, self._patience_ms)
        for partition, ends in answer.found.items():
            lineage, current_epoch = known[partition], known[partition].leader[1]
            lineage.ends.update(ends)
            if current_epoch in lineage.ends:
                lineage.ends[current_epoch] = END_OF_LOG  # the current epoch is still growing
            lineage.requested.update(unknown[partition])
        found: dict[TopicPartition, Lineage] = {
            partition: lineage.ends for partition, lineage in known.items() if partition not in answer.faults
        }
        return PartialAnswer(found, answer.faults)

    def _of_leader(self, partition: TopicPartition, topic: TopicMetadata) -> _LeaderLineage:
        """Return the partition's cached lineage as its current leader has reported it.

        If another leader has reported it, or the current leader's epoch is unknown, replace it by an empty one.
        """
        leader = topic.topic_id, topic.partitions[partition.partition].leader_epoch
        known = self._known.get(partition)
        if known is None or known.leader != leader or leader[1] == NO_EPOCH:
            known = self._known[partition] = _LeaderLineage(leader)
        return known
