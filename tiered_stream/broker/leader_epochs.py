"""A partition's history of leaders, asked of its present one (Kafka: OffsetForLeaderEpoch, KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.leaders import LeaderRequest, Leaders, ask_leaders, by_topic
from tiered_stream.model import TopicPartition

NO_EPOCH = -1


def leader_epoch_end_offsets(
    client: BrokerClient, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """By partition, the largest epoch of its lineage that is not above the given one, and its end offset (exclusive).

    The present epoch ends at the log end. (-1, -1): the given epoch is above all of the lineage. For an epoch that
    lies below all that the leader remembers, the answer is that epoch and the start of the first one remembered.

    Raises: as `leaders.ask_leaders`.
    """
    if not epochs:
        return {}
    request = _OffsetForLeaderEpoch(epochs)
    return client.run(lambda: ask_leaders(client, request, epochs, client.deadline()))


def lineages(
    client: BrokerClient, epochs: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, dict[int, int]]:
    """By partition, the end offsets (exclusive) of those of the given epochs that belong to its lineage.

    An epoch that is missing in the result led nothing that is still part of the log. One round of requests for each
    epoch of the partition with the most of them. Raises: as `leaders.ask_leaders`.
    """
    found: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in epochs}
    waiting = {partition: sorted(set(wanted)) for partition, wanted in epochs.items()}
    while waiting := {partition: wanted for partition, wanted in waiting.items() if wanted}:
        asked = {partition: wanted.pop() for partition, wanted in waiting.items()}
        for partition, (epoch, end_offset) in leader_epoch_end_offsets(client, asked).items():
            if epoch == asked[partition]:
                found[partition][epoch] = end_offset
    return found


class _OffsetForLeaderEpoch(LeaderRequest[tuple[int, int]]):
    needed_acl = "DESCRIBE on the topic"

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._epochs = epochs

    def message(self, leaders: Leaders) -> Any:
        return OffsetForLeaderEpochRequest(
            replica_id=-1,  # a consumer
            topics=[self._topic(topic, listed, leaders) for topic, listed in by_topic(leaders).items()],
            min_version=2,
        )

    def _topic(self, topic: str, partitions: list[TopicPartition], leaders: Leaders) -> Any:
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        return kind(
            topic=topic,
            partitions=[
                kind.OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=leaders[partition].leader_epoch,
                    leader_epoch=self._epochs[partition],
                )
                for partition in partitions
            ],
        )

    def answers(self, response: Any) -> Iterable[tuple[TopicPartition, int, tuple[int, int]]]:
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.topic, answer.partition)
                yield partition, answer.error_code, (answer.leader_epoch, answer.end_offset)

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, leader epoch {self._epochs[partition]}"
