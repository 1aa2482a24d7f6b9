"""Requests for a partition's leader epochs and their end offsets (Kafka: OffsetForLeaderEpoch, KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.leaders import LeaderRequest, Leaders, ask_each_leader, by_topic
from tiered_stream.model import PartialAnswer, TopicPartition

NO_EPOCH = -1


def leader_epoch_end_offsets(
    client: BrokerClient, epochs: Mapping[TopicPartition, int], patience_ms: int | None = None
) -> PartialAnswer[TopicPartition, tuple[int, int]]:
    """Return, by partition, the leader's largest epoch that is not above the epoch in `epochs`, and its end offset.

    The end offset is exclusive. The leader's newest epoch ends at the log end. If the epoch in `epochs` is newer than
    all epochs of the leader, the result is (-1, -1). If the epoch in `epochs` is older than all epochs of the leader,
    the result is that older epoch. Its end is then the start offset of the leader's first epoch.

    `patience_ms` None: `default.api.timeout.ms`.

    Raises:
        BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
            exist.
    """
    request = _OffsetForLeaderEpoch(epochs)
    return client.run(lambda: ask_each_leader(client, request, epochs, patience_ms))


def lineages(
    client: BrokerClient, epochs: Mapping[TopicPartition, Collection[int]], patience_ms: int | None = None
) -> PartialAnswer[TopicPartition, dict[int, int]]:
    """Return, by partition, the end offset (exclusive) of each epoch in `epochs` that is in the partition's lineage.

    Other epochs are left out, because none of their records is part of the log any more. A partition with an error is
    only in `faults`. A request to a leader asks for only one epoch of each partition. So there may be several rounds of
    requests. `patience_ms` is the time limit of one round; None: `default.api.timeout.ms`.

    Raises:
        BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
            exist.
    """
    answer: PartialAnswer[TopicPartition, dict[int, int]] = PartialAnswer({partition: {} for partition in epochs}, {})
    remaining = {partition: sorted(set(numbers)) for partition, numbers in epochs.items()}
    while remaining := {at: numbers for at, numbers in remaining.items() if numbers and at in answer.found}:
        requested = {partition: numbers.pop() for partition, numbers in remaining.items()}
        ends = leader_epoch_end_offsets(client, requested, patience_ms)
        for partition, (epoch, end_offset) in ends.found.items():
            if epoch == requested[partition]:
                answer.found[partition][epoch] = end_offset
        for partition, fault in ends.faults.items():
            answer.faults[partition] = fault
            del answer.found[partition]
    return answer


class _OffsetForLeaderEpoch(LeaderRequest[tuple[int, int]]):
    needed_acl = "DESCRIBE on the topic"

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._epochs = epochs

    def message(self, leaders: Leaders) -> Any:
        return OffsetForLeaderEpochRequest(
            replica_id=-1,  # a consumer
            topics=[self._topic(topic, partitions, leaders) for topic, partitions in by_topic(leaders).items()],
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

    def results(self, response: Any) -> Iterable[tuple[TopicPartition, int, tuple[int, int]]]:
        for topic in response.topics or ():
            for result in topic.partitions or ():
                partition = TopicPartition(topic.topic, result.partition)
                yield partition, result.error_code, (result.leader_epoch, result.end_offset)

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, leader epoch {self._epochs[partition]}"
