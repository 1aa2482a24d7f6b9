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
        throttle_time_ms=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(version=12, node_id=node, host=host, port=port, rack=None)
            for node, (host, port) in brokers.items()
        ],
        cluster_id=cluster_id,
        controller_id=1,
        topics=[
            kind(
                version=12, error_code=topic.error_code, name=name, topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[
                    kind.MetadataResponsePartition(
                        version=12, error_code=0, partition_index=number, leader_id=leader,
                        leader_epoch=topic.epoch, replica_nodes=list(brokers), isr_nodes=list(brokers),
                        offline_replicas=[],
                    )
                    for number, leader in enumerate(topic.leaders)
                ],
            )
            for name, topic in topics.items()
        ],
    )  # fmt: skip


def offsets_response(request: Any, offset_of: Callable[[str, Any], int]) -> Any:
    """Return the offset that `offset_of` gives for a topic and a partition of the request."""
    topic_kind = ListOffsetsResponse.ListOffsetsTopicResponse
    kind = topic_kind.ListOffsetsPartitionResponse
    return ListOffsetsResponse(
        version=8,
        throttle_time_ms=0,
        topics=[
            topic_kind(
                version=8, name=topic.name,
                partitions=[
                    kind(
                        version=8, partition_index=each.partition_index, error_code=0, timestamp=-1,
                        leader_epoch=0,
                        offset=offset_of(topic.name, each),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )  # fmt: skip


def epochs_response(request: Any, end_of: Callable[[str, int], int]) -> Any:
    """Return that the epoch 0 ends where `end_of` says for a topic and a partition's number."""
    topic_kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return OffsetForLeaderEpochResponse(
        version=4,
        throttle_time_ms=0,
        topics=[
            topic_kind(
                version=4, topic=topic.topic,
                partitions=[
                    topic_kind.EpochEndOffset(
                        version=4, error_code=0, partition=each.partition, leader_epoch=0,
                        end_offset=end_of(topic.topic, each.partition),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )  # fmt: skip


def fetch_response(partitions: Mapping[UUID, Iterable[Any]], throttle_ms: int = 0) -> Any:
    """Return the partitions (`fetched_partition`) of each topic id."""
    kind = FetchResponse.FetchableTopicResponse
    topics = [kind(version=17, topic_id=topic_id, partitions=list(fetched)) for topic_id, fetched in partitions.items()]
    return FetchResponse(version=17, throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=topics)


def fetched_partition(
    number: int, end: int, records: bytes = b"", *, error_code: int = 0, log_start: int = 0, read_replica: int = -1
) -> Any:
    return FetchResponse.FetchableTopicResponse.PartitionData(
        version=17, partition_index=number, error_code=error_code, high_watermark=end, last_stable_offset=end,
        log_start_offset=log_start, aborted_transactions=[], preferred_read_replica=read_replica, records=records,
    )  # fmt: skip
