"""Lineages as the partitions' leaders know them, asked again only when a leader changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.leader_epochs import NO_EPOCH, lineages
from tiered_stream.locate.lineage import END_OF_LOG, Lineage
from tiered_stream.model import PartialAnswer, TopicPartition


@dataclass(slots=True)
class _Known:
    leader: tuple[UUID, int]
    ends: dict[int, int] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)


class BrokerLineages:
    """Serves many threads, but one at a time for the same partition.

    A closed epoch's end changes only when an election truncates the log, and that raises the leader's epoch.
    """

    def __init__(self, client: BrokerClient, patience_ms: int | None = None) -> None:
        self._client = client
        self._patience_ms = patience_ms
        self._known: dict[TopicPartition, _Known] = {}

    def of(
        self, epochs: Mapping[TopicPartition, Collection[int]], leaders: Mapping[TopicPartition, tuple[UUID, int]]
    ) -> PartialAnswer[TopicPartition, Lineage]:
        """By partition, its lineage as far as the given epochs belong to it.

        Args:
            leaders: the topic's id and the present leader's epoch.

        Raises: as `leader_epochs.lineages`.
        """
        known = {partition: self._of_leader(partition, leaders[partition]) for partition in epochs}
        unasked = {partition: set(wanted) - known[partition].asked for partition, wanted in epochs.items()}
        missing = {partition: wanted for partition, wanted in unasked.items() if wanted}
        told = lineages(self._client, missing, self._patience_ms)
        for partition, ends in told.found.items():
            one = known[partition]
            one.ends.update(ends)
            present = one.leader[1]
            if present in one.ends:
                one.ends[present] = END_OF_LOG  # it is still growing
            one.asked.update(missing[partition])
        return PartialAnswer({each: known[each].ends for each in epochs if each not in told.faults}, told.faults)

    def _of_leader(self, partition: TopicPartition, leader: tuple[UUID, int]) -> _Known:
        known = self._known.get(partition)
        if known is None or known.leader != leader or leader[1] == NO_EPOCH:
            known = self._known[partition] = _Known(leader)
        return known
