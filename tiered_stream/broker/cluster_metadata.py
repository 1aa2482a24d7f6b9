"""Metadata of topics, partitions and leaders, as brokers describe them (Kafka: MetadataRequest, MetadataResponse)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest

from tiered_stream.errors import BrokerError
from tiered_stream.model import NO_TOPIC_ID, is_topic_name

_LEADER_NOT_AVAILABLE = 5


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Leader of a partition. `leader_id` is -1 while there is no leader; `leader_epoch` is -1 if it is unknown."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """Metadata of a topic. `partitions` has the leader of each partition, by partition number.

    `topic_id` is all zeros if the brokers have no topic ids (before Kafka 2.8).
    """

    topic: str
    topic_id: UUID
    internal: bool
    partitions: Mapping[int, PartitionMetadata]


def metadata_request(topics: Collection[str] | None) -> Any:
    """Return a Metadata request for these topics (None: all topics). No broker creates a topic because of it."""
    kind = MetadataRequest.MetadataRequestTopic
    requested = None if topics is None else [kind(name=topic) for topic in sorted(topics)]
    # In versions below 4, a broker may create the topics that the request names.
    return MetadataRequest(topics=requested, allow_auto_topic_creation=False, min_version=4)


def read_topics(response: Any) -> tuple[dict[str, TopicMetadata], dict[str, int]]:
    """Return the topics of a Metadata response in two dictionaries by name.

    The first has the metadata of topics without an error. The second has the error codes of topics with an error. A
    topic without partitions has the error LEADER_NOT_AVAILABLE.

    Raises:
        BrokerError: a topic has a name that Kafka does not allow.
    """
    topics: dict[str, TopicMetadata] = {}
    error_codes: dict[str, int] = {}
    for topic in response.topics or ():
        if topic.name is None:  # only a request by topic id, which we never send, leads to this
            continue
        if topic.error_code or not topic.partitions:
            error_codes[topic.name] = topic.error_code or _LEADER_NOT_AVAILABLE
        elif not is_topic_name(topic.name):
            raise BrokerError(f"a broker has sent {topic.name!r:.300} as a topic's name, which Kafka does not allow")
        else:
            topics[topic.name] = _topic(topic, epochs_are_valid=response.API_VERSION >= 9)
    return topics, error_codes


def _topic(topic: Any, epochs_are_valid: bool) -> TopicMetadata:
    """Return a topic's metadata, with leader epochs of -1 unless `epochs_are_valid`.

    Brokers older than Kafka 2.4 (Metadata version 9) may return outdated leader epochs (KAFKA-9212).
    """
    partitions = {
        partition.partition_index: PartitionMetadata(
            partition.leader_id, partition.leader_epoch if epochs_are_valid else -1
        )
        for partition in sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
    }
    return TopicMetadata(topic.name, topic.topic_id or NO_TOPIC_ID, bool(topic.is_internal), partitions)
