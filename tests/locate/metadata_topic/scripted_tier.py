"""Brokers with several tiered topics, scripted: for partitions without a leader, brokers that are gone, bad records.

Each topic has one partition, each of its segments 10 offsets, and the metadata topic four partitions. A partition's
leader is broker 1 unless `leaders` says otherwise; -1: it has none. What the brokers in `silent` are asked, but for
metadata, gets no answer until they are not silent any more, or time is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

from tests.broker.responses import (
    DescribedTopic,
    epochs_response,
    fetch_response,
    fetched_partition,
    metadata_response,
    offsets_response,
)
from tests.broker.scripted import BROKERS, ScriptedClient
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier import metadata
from tests.tier.segments import described
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.list_offsets import ListOffsetsRequest
from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    metadata_partition,
)
from tiered_stream.model import RemoteLogSegment, TopicPartition

METADATA_PARTITIONS = 4
METADATA_TOPIC_ID = UUID(int=1)
OFFSETS = 10
LOG_END = 10_000
COMPACTED_AWAY = b""
"""In place of a record's value in `values`: compaction took the record away."""
_LATEST = -1


def segment_record(
    topic: str, topic_id: UUID, number: int, end_offset: int | None = None, state: int = 1, epoch: int = 0
) -> bytes:
    """The metadata record that says that the partition's segment of this number is finished, or in another state."""
    return metadata.segment_record(tiered_segment(topic, topic_id, number, end_offset, epoch), state)


def tiered_segment(
    topic: str, topic_id: UUID, number: int, end_offset: int | None = None, epoch: int = 0
) -> RemoteLogSegment:
    return described(
        TopicPartition(topic, 0), number * OFFSETS, (end_offset or (number + 1) * OFFSETS - 1) + 1,
        topic_id.int + number + 1, topic_id=topic_id, size=100, epochs=((epoch, 0),), max_timestamp=0,
        transaction_index_empty=True,
    )  # fmt: skip


class _Client(ScriptedClient):
    def __init__(self, tier: ScriptedTier) -> None:
        super().__init__(tier.answer, {"default.api.timeout.ms": "3600000"})
        self._tier = tier

    async def request(self, node_id: int, message: Any, deadline: Deadline) -> Any:
        while node_id in self._tier.silent and not isinstance(message, MetadataRequest):
            if not deadline.remaining_ms:
                raise BrokerUnavailableError(f"broker {node_id} is silent")
            await self.connections.sleep(0.01)
        return await super().request(node_id, message, deadline)


class ScriptedTier:
    """`topics` by name; `tell` adds a record to the metadata topic."""

    def __init__(self, *topics: str) -> None:
        self.topics = {name: UUID(int=number << 96 | 0xABC) for number, name in enumerate(topics, 1)}
        self.leaders: dict[TopicPartition, int] = {}
        self.silent: set[int] = set()
        self.late = 0
        """So many records came to each metadata partition after its end was told."""
        self.throttle_ms = 0
        self.cluster_id = "c"
        self.refused = False
        """Whether the user may not READ the metadata topic."""
        self.log_start = 0
        """Of the metadata partitions."""
        self.metadata_topic_id = METADATA_TOPIC_ID
        self.values: list[list[bytes]] = [[] for _ in range(METADATA_PARTITIONS)]
        self.client = _Client(self)
        for name, topic_id in self.topics.items():
            self.tell(name, segment_record(name, topic_id, 0))

    def tell(self, topic: str, value: bytes) -> None:
        """Where the topic's records belong."""
        self.values[self.told_by(topic).partition].append(value)

    def told_by(self, topic: str) -> TopicPartition:
        """The partition of the metadata topic that tells of the topic."""
        partition = TopicIdPartition(self.topics[topic], TopicPartition(topic, 0))
        return TopicPartition(REMOTE_LOG_METADATA_TOPIC, metadata_partition(partition, METADATA_PARTITIONS))

    def answer(self, node_id: int, message: Any) -> Any:
        if isinstance(message, MetadataRequest):
            return self._metadata(None if message.topics is None else [topic.name for topic in message.topics])
        if isinstance(message, ListOffsetsRequest):
            return offsets_response(message, self._offset)
        if isinstance(message, ApiVersionsRequest):
            return ApiVersionsResponse(version=4, error_code=0, api_keys=[], supported_features=[])
        if isinstance(message, OffsetForLeaderEpochRequest):
            return epochs_response(message, lambda topic, partition: LOG_END)
        return self._fetch(message)

    def _end(self, topic: str, partition: int) -> int:
        return len(self.values[partition]) - self.late if topic == REMOTE_LOG_METADATA_TOPIC else LOG_END

    def _metadata(self, wanted: list[str] | None) -> Any:
        counts = {REMOTE_LOG_METADATA_TOPIC: METADATA_PARTITIONS, **dict.fromkeys(self.topics, 1)}
        topics = {
            name: DescribedTopic(
                self.topics.get(name, self.metadata_topic_id),
                [self.leaders.get(TopicPartition(name, number), 1) for number in range(counts.get(name, 0))],
                error_code=0 if name in counts else 3,
                is_internal=name == REMOTE_LOG_METADATA_TOPIC,
            )
            for name in (counts if wanted is None else wanted)
        }
        return metadata_response(topics, BROKERS, self.cluster_id)

    def _offset(self, topic: str, asked: Any) -> int:
        if asked.timestamp == _LATEST:
            return self._end(topic, asked.partition_index)
        return self.log_start * (topic == REMOTE_LOG_METADATA_TOPIC)

    def _fetch(self, request: Any) -> Any:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        of_metadata = topic.topic == REMOTE_LOG_METADATA_TOPIC
        values = self.values[wanted.partition][wanted.fetch_offset :] if of_metadata else []
        batches: Iterator[bytes] = (
            record_batch([Record(None, each)], base_offset=at)
            for at, each in enumerate(values, wanted.fetch_offset)
            if each != COMPACTED_AWAY
        )
        if wanted.partition_max_bytes == 1:
            batches = islice(batches, 1)
        partition = fetched_partition(
            wanted.partition,
            self._end(topic.topic, wanted.partition),
            b"".join(batches) if of_metadata else record_batch([Record()]),
            error_code=29 * (self.refused and of_metadata),
        )
        return fetch_response({topic.topic_id: [partition]}, self.throttle_ms)
