"""ListOffsets requests and responses for very many partitions, encoded and decoded by structs of fixed size.

    request     replica int32 (-1: a consumer), isolation level int8, array of topics,
                from version 10 on timeout int32 (ms)
    topic       name compact string, array of partitions
    partition   number int32, leader epoch int32, timestamp int64

    response    throttle time int32 (ms), array of topics
    topic       name compact string, array of partitions
    partition   number int32, error code int16, timestamp int64, offset int64, leader epoch int32

Request, response, topics and partitions each end with tagged fields. (Kafka: `ListOffsetsRequest.json`,
`ListOffsetsResponse.json`, flexible versions.) Fields are named as in kafka-python's classes. Those classes are slower,
because they are plain Python: for 10,000 partitions, they take 100 ms of an idle core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from struct import Struct
from typing import NamedTuple

from tiered_stream.broker.wire.kafka_python import OwnRequest
from tiered_stream.records.flexible_versions import NO_TAGS, Reader, compact_array, compact_string, uvarint

FIRST_FLEXIBLE = 6

_CONSUMER = -1
_FIRST_WITH_TIMEOUT = 10
_REQUEST_HEAD = Struct(">ib")
_TIMEOUT = Struct(">i")
_REQUEST_PARTITION = Struct(">iiqx")
_THROTTLE_TIME = Struct(">i")
_RESPONSE_PARTITION = Struct(">ihqqix")
_MIN_TOPIC_BYTES = 3


class ListOffsetsPartition(NamedTuple):
    """Partition in a ListOffsets request.

    `timestamp` is in milliseconds, or a negative number that stands for a special offset, such as -1 for the latest
    offset.
    """

    partition_index: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsTopic(NamedTuple):
    """Partitions of one topic in a ListOffsets request."""

    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsPartitionResponse(NamedTuple):
    """Partition in a ListOffsets response. `offset` is -1 if no record is at or after the requested timestamp."""

    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class ListOffsetsTopicResponse(NamedTuple):
    """Offsets of one topic's partitions in a ListOffsets response."""

    name: str
    partitions: list[ListOffsetsPartitionResponse]


@dataclass(frozen=True, slots=True)
class ListedOffsets:
    """ListOffsets response: the offsets by topic and partition, and the throttle time in milliseconds."""

    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]


@dataclass(kw_only=True)
class ListOffsetsRequest(OwnRequest):
    """ListOffsets request.

    `min_version` is the first version that supports the timestamps in the request. `timeout_ms` is the longest time
    that the broker may take; it is sent from version 10 on.
    """

    API_KEY = 2
    name = "ListOffsetsRequest"
    max_version = 11

    isolation_level: int
    topics: Sequence[ListOffsetsTopic]
    timeout_ms: int
    min_version: int = FIRST_FLEXIBLE

    def encode_body(self, version: int) -> bytes:
        return b"".join(
            (
                _REQUEST_HEAD.pack(_CONSUMER, self.isolation_level),
                compact_array([_encode_topic(topic) for topic in self.topics]),
                _TIMEOUT.pack(self.timeout_ms) if version >= _FIRST_WITH_TIMEOUT else b"",
                NO_TAGS,
            )
        )

    def decode_response(self, body: Reader) -> ListedOffsets:
        (throttle_time_ms,) = body.unpack(_THROTTLE_TIME)
        topics = body.array(_MIN_TOPIC_BYTES, _decode_topic)
        body.tags()
        return ListedOffsets(throttle_time_ms, topics)


def _encode_topic(topic: ListOffsetsTopic) -> bytes:
    partitions = b"".join(starmap(_REQUEST_PARTITION.pack, topic.partitions))
    return compact_string(topic.name) + uvarint(len(topic.partitions) + 1) + partitions + NO_TAGS


def _decode_topic(body: Reader) -> ListOffsetsTopicResponse:
    name = body.compact_string()
    partitions = list(starmap(ListOffsetsPartitionResponse, body.structs(_RESPONSE_PARTITION)))
    body.tags()
    return ListOffsetsTopicResponse(name, partitions)
