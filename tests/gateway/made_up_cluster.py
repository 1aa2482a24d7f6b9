"""A cluster of one broker that holds nothing but tiered segments, made up: for planning at sizes no test could tier.

It answers ApiVersions, Metadata, ListOffsets, OffsetForLeaderEpoch and Fetch. What it leaves out: everything else, and
of Fetch all but the metadata topic's records, and that there is something after the last segment. Every segment has
1,000 offsets and 100,000 bytes, no transaction index, and no object anywhere.

python -m tests.gateway.made_up_cluster PORT PARTITIONS SEGMENTS [TOPICS [GROWING [SEGMENT_BYTES]]]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

from tests.broker.responses import (
    DescribedTopic,
    epochs_response,
    fetch_response,
    fetched_partition,
    metadata_response,
    offsets_response,
)
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier.metadata import FINISHED, segment_record
from tests.tier.segments import described
from tiered_stream.broker.wire.location_messages import (
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
)
from tiered_stream.gateway.protocol.frames import body_of_flexible, frame
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    metadata_partition,
)
from tiered_stream.model import TopicPartition
from tiered_stream.records.flexible_versions import NO_TAGS

TOPIC = "made-up"
METADATA_TOPIC_ID = UUID(int=8)
METADATA_PARTITIONS = 50
OFFSETS, BYTES = 1_000, 100_000
LATEST = -1
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
LARGE = 64 << 10
FETCH = b"\0\1"
_NOT_TIERED = record_batch([Record()])

REQUESTS = {
    kind.API_KEY: kind
    for kind in (ApiVersionsRequest, MetadataRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, FetchRequest)
}
VERSIONS = {
    kind.API_KEY: version
    for kind, version in (
        (ApiVersionsRequest, 4), (MetadataRequest, 12), (ListOffsetsRequest, 9), (OffsetForLeaderEpochRequest, 4),
        (FetchRequest, 17),
    )
}  # fmt: skip


def topic_names(count: int) -> list[str]:
    return [TOPIC, *(f"{TOPIC}-{number}" for number in range(1, count))]


def metadata_records(partition: TopicIdPartition, segments: int, segment_bytes: int = BYTES) -> Iterable[bytes]:
    """The values of the metadata topic's records that say that the partition has so many finished segments."""
    for number in range(segments):
        key = (partition.topic_id.int << 64) + (partition.topic_partition.partition << 32) + number + 1
        segment = described(
            partition.topic_partition, number * OFFSETS, (number + 1) * OFFSETS, key, topic_id=partition.topic_id,
            size=segment_bytes, epochs=((0, 0),), max_timestamp=0, transaction_index_empty=True,
        )  # fmt: skip
        yield segment_record(segment, FINISHED)


class MadeUpCluster:
    """`port` is where it listens, also for the one broker that it tells of.

    Each topic has so many partitions, each of these so many segments. The first `growing` of each topic have one record
    more, which is not tiered, whenever the ends of the first topic's are asked for.
    """

    def __init__(
        self, port: int, partitions: int, segments: int, topics: int = 1, growing: int = 0, segment_bytes: int = BYTES
    ) -> None:
        self.port = port
        self.partitions = partitions
        self.segments = segments
        self._ids = {name: UUID(int=number << 32 | 7) for number, name in enumerate(topic_names(topics))}
        self._growing = growing
        self._grown = 0
        values: list[list[bytes]] = [[] for _ in range(METADATA_PARTITIONS)]
        for name, topic_id in self._ids.items():
            for number in range(partitions):
                partition = TopicIdPartition(topic_id, TopicPartition(name, number))
                values[metadata_partition(partition, METADATA_PARTITIONS)] += metadata_records(
                    partition, segments, segment_bytes
                )
        self._logs = [record_batch([Record(None, value) for value in log]) if log else b"" for log in values]
        self._ends = [len(log) for log in values]

    async def serve(self) -> None:
        """Answer until cancelled."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", self.port)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                content = await reader.readexactly(size)
                quickly = self._respond_quickly(content) if content[:2] == FETCH and size <= LARGE else None
                if content[:2] == FETCH and size > LARGE:  # others are answered meanwhile
                    quickly = await asyncio.to_thread(self._respond_quickly, content)
                writer.write(quickly or self._respond(content))
                await writer.drain()
        except (EOFError, OSError):
            writer.close()

    def _respond(self, content: bytes) -> bytes:
        api_key, version = (int.from_bytes(content[at : at + 2], "big") for at in (0, 2))
        request = REQUESTS[api_key].decode(content, version=version, header=True)
        response = self._answer(request)
        response.with_header(request.header.correlation_id)
        response._header = type(response).header_class(correlation_id=request.header.correlation_id)
        response._version = version
        return bytes(response.encode(header=True, framed=True))

    def _respond_quickly(self, content: bytes) -> bytes | None:
        """To a Fetch that gets no records; None: it may get some."""
        body, version = body_of_flexible(content), int.from_bytes(content[2:4], "big")
        asked = LocationFetchRequest.decode_body(version, body).topics
        for topic in asked:
            end = -1 if topic.topic_id not in self._ids.values() else self.segments * OFFSETS + 1
            records = topic.topic_id == METADATA_TOPIC_ID or any(each.fetch_offset < end for each in topic.partitions)
            if records and len(content) <= LARGE:
                return None
        topics = [
            FetchTopic(topic.topic_id, [self._located(topic.topic_id, each.partition) for each in topic.partitions])
            for topic in asked
        ]
        return frame(content[4:8] + NO_TAGS + b"".join(LocationFetchResponse(0, 0, 0, topics).pieces()))

    def _located(self, topic_id: UUID | None, partition: int) -> LocatedPartition:
        if topic_id is None or topic_id not in self._ids.values():
            return LocatedPartition(partition, UNKNOWN_TOPIC_ID, -1, -1, -1)
        if partition >= self.partitions:
            return LocatedPartition(partition, UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
        end = self._end(topic_id, partition)
        return LocatedPartition(partition, 0, end, end, 0)

    def _answer(self, request: Any) -> Any:
        if isinstance(request, ApiVersionsRequest):
            kind = ApiVersionsResponse.ApiVersion
            keys = [kind(api_key=key, min_version=0, max_version=version) for key, version in VERSIONS.items()]
            return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)
        if isinstance(request, MetadataRequest):
            return self._metadata(None if request.topics is None else [topic.name for topic in request.topics])
        if isinstance(request, FetchRequest):
            return self._fetch(request)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return epochs_response(request, lambda topic, number: self._end(self._id_of(topic), number))
        self._grown += any(each.name == TOPIC and each.partitions[0].timestamp == LATEST for each in request.topics)
        return offsets_response(request, self._listed)

    def _metadata(self, wanted: list[str] | None) -> Any:
        topics = {name: DescribedTopic(topic_id, [1] * self.partitions) for name, topic_id in self._ids.items()}
        topics[REMOTE_LOG_METADATA_TOPIC] = DescribedTopic(
            METADATA_TOPIC_ID, [1] * METADATA_PARTITIONS, is_internal=True
        )
        chosen = {name: topic for name, topic in topics.items() if wanted is None or name in wanted}
        return metadata_response(chosen, {1: ("127.0.0.1", self.port)}, "made-up")

    def _end(self, topic_id: UUID, partition: int) -> int:
        if topic_id == METADATA_TOPIC_ID:
            return self._ends[partition]
        return self.segments * OFFSETS + 1 + (self._grown if partition < self._growing else 0)

    def _id_of(self, topic: str) -> UUID:
        return self._ids.get(topic, METADATA_TOPIC_ID)

    def _listed(self, topic: str, asked: Any) -> int:
        return self._end(self._id_of(topic), asked.partition_index) if asked.timestamp == LATEST else 0

    def _fetch(self, request: Any) -> Any:
        return fetch_response({
            topic.topic_id: [self._fetched(topic.topic_id, each) for each in topic.partitions]
            for topic in request.topics
        })  # fmt: skip

    def _fetched(self, topic_id: UUID, partition: Any) -> Any:
        if topic_id != METADATA_TOPIC_ID and topic_id not in self._ids.values():
            return fetched_partition(partition.partition, -1, error_code=UNKNOWN_TOPIC_ID, log_start=-1)
        if topic_id != METADATA_TOPIC_ID and partition.partition >= self.partitions:
            return fetched_partition(partition.partition, -1, error_code=UNKNOWN_TOPIC_OR_PARTITION, log_start=-1)
        end = self._end(topic_id, partition.partition)
        log = self._logs[partition.partition] if topic_id == METADATA_TOPIC_ID else _NOT_TIERED
        return fetched_partition(partition.partition, end, log if partition.fetch_offset < end else b"")


if __name__ == "__main__":
    # A large Fetch is answered in a thread of its own, which delays the other answers no more than a broker's would.
    sys.setswitchinterval(0.0005)
    asyncio.run(MadeUpCluster(*map(int, sys.argv[1:])).serve())
