"""Responses of brokers, by what a test says of topics and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import MetadataResponse


@dataclass(frozen=True)
class DescribedTopic:
    """Topic with the leader of each partition, -1 where none leads."""

    topic_id: UUID
    leaders: Sequence[int]
    error_code: int = 0
    epoch: int = 0
    is_internal: bool = False


def metadata_response(
    topics: Mapping[str, DescribedTopic], brokers: Mapping[int, tuple[str, int]], cluster_id: str = "c"
) -> Any:
    kind = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        version=12,
        brokers=[
            MetadataResponse.MetadataResponseBroker(version=12, node_id=node, host=host, port=port)
            for node, (host, port) in brokers.items()
        ],
        cluster_id=cluster_id,
        topics=[
            kind(
                error_code=topic.error_code,
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[
                    kind.MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=topic.epoch)
                    for number, leader in enumerate(topic.leaders)
                ],
            )
            for name, topic in topics.items()
        ],
    )


def offsets_response(request: Any, offset_of: Callable[[str, Any], int]) -> Any:
    """Return the offset that `offset_of` gives for a topic and a partition of the request."""
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = kind.ListOffsetsPartitionResponse
    return ListOffsetsResponse(
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    partition(partition_index=each.partition_index, offset=offset_of(topic.name, each))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def epochs_response(request: Any, end_of: Callable[[str, int], int]) -> Any:
    """Return that the epoch 0 ends where `end_of` says for a topic and a partition's number."""
    kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return OffsetForLeaderEpochResponse(
        topics=[
            kind(
                topic=topic.topic,
                partitions=[
                    kind.EpochEndOffset(
                        partition=each.partition, leader_epoch=0, end_offset=end_of(topic.topic, each.partition)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetch_response(partitions: Mapping[UUID, Iterable[Any]], throttle_ms: int = 0) -> Any:
    """Return the partitions (`fetched_partition`) of each topic id."""
    kind = FetchResponse.FetchableTopicResponse
    topics = [kind(topic_id=topic_id, partitions=list(fetched)) for topic_id, fetched in partitions.items()]
    return FetchResponse(throttle_time_ms=throttle_ms, responses=topics)


def fetched_partition(
    number: int, end: int, records: bytes = b"", *, error_code: int = 0, log_start: int = 0, read_replica: int = -1
) -> Any:
    return FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=number, error_code=error_code, high_watermark=end, last_stable_offset=end,
        log_start_offset=log_start, preferred_read_replica=read_replica, records=records,
    )  # fmt: skip
