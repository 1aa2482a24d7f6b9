"""Lineages as the partitions' leaders know them, asked again only when a leader changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.leader_epochs import NO_EPOCH, lineages
from tiered_stream.locate.lineage import END_OF_LOG, Lineage
from tiered_stream.model import TopicPartition


@dataclass(slots=True)
class _Known:
    leader_epoch: int
    ends: dict[int, int] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)


class BrokerLineages:
    """A closed epoch's end changes only when an election truncates the log, and that raises the leader's epoch."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._known: dict[TopicPartition, _Known] = {}

    def of(
        self, epochs: Mapping[TopicPartition, Collection[int]], leader_epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Lineage]:
        """By partition, its lineage as far as the given epochs belong to it; `leader_epochs`: of the present leaders.

        Raises:
            BrokerError: a leader cannot be asked.
        """
        for partition in epochs:
            known = self._known.get(partition)
            if known is None or known.leader_epoch != leader_epochs[partition] or known.leader_epoch == NO_EPOCH:
                self._known[partition] = _Known(leader_epochs[partition])
        unasked = {partition: set(wanted) - self._known[partition].asked for partition, wanted in epochs.items()}
        missing = {partition: wanted for partition, wanted in unasked.items() if wanted}
        for partition, ends in lineages(self._client, missing).items() if missing else ():
            known = self._known[partition]
            known.asked.update(missing[partition])
            known.ends.update(ends)
            if known.leader_epoch in known.ends:
                known.ends[known.leader_epoch] = END_OF_LOG  # it is still growing
        return {partition: self._known[partition].ends for partition in epochs}
