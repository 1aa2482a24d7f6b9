"""Topics, partitions and leaders as the brokers describe them (Kafka: MetadataRequest, MetadataResponse)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest

NO_TOPIC_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Who leads a partition. `leader_id` is -1 while there is none, `leader_epoch` -1 where it is not known."""

    partition: int
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic. `topic_id` is all zeros where the broker has none (before Kafka 2.8); `internal` as the broker says."""

    topic: str
    topic_id: UUID
    internal: bool
    partitions: Mapping[int, PartitionMetadata]


def metadata_request(topics: Collection[str] | None) -> Any:
    """Asks for the given topics, None: for all; never makes a broker create one."""
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    # Before version 4 a broker may create the topics that it is asked for.
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=4)


def read_topics(response: Any) -> tuple[dict[str, TopicMetadata], dict[str, int]]:
    """The topics that the response describes, and the error codes of those it does not."""
    topics: dict[str, TopicMetadata] = {}
    error_codes: dict[str, int] = {}
    for topic in response.topics or ():
        if topic.name is None:  # as of ids that nobody asked for
            continue
        if topic.error_code:
            error_codes[topic.name] = topic.error_code
        else:
            topics[topic.name] = _topic(topic, epochs_hold=response.API_VERSION >= 9)
    return topics, error_codes


def _topic(topic: Any, epochs_hold: bool) -> TopicMetadata:
    """Brokers older than Kafka 2.4 (version 9) may give a leader epoch of the past (KAFKA-9212)."""
    partitions = {
        partition.partition_index: PartitionMetadata(
            partition.partition_index, partition.leader_id, partition.leader_epoch if epochs_hold else -1
        )
        for partition in sorted(topic.partitions or (), key=lambda partition: int(partition.partition_index))
    }
    return TopicMetadata(topic.name, topic.topic_id or NO_TOPIC_ID, bool(topic.is_internal), partitions)
