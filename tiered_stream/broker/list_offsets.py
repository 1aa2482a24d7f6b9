"""Reader of offsets from brokers, and its ListOffsets messages, encoded and decoded by structs of fixed size.

    request     replica int32 (-1: a consumer), isolation level int8, array of topics,
                from version 10 on timeout int32 (ms)
    topic       name compact string, array of partitions
    partition   number int32, leader epoch int32, timestamp int64

    response    throttle time int32 (ms), array of topics
    topic       name compact string, array of partitions
    partition   number int32, error code int16, timestamp int64, offset int64, leader epoch int32

Request, response, topics and partitions each end with tagged fields. (Kafka: `ListOffsetsRequest.json`,
`ListOffsetsResponse.json`, flexible versions.) Fields are named as in kafka-python's classes. kafka-python's classes
are slower, because they are plain Python: for 10,000 partitions, they take 100 ms of an idle core.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from struct import Struct
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.group_offsets import GroupOffsets
from tiered_stream.broker.leader_requests import LeaderRequest, ask_each_leader, ask_leaders
from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.broker.wire.kafka_python import OwnRequest
from tiered_stream.errors import CorruptDataError
from tiered_stream.model import PartialAnswer, TopicDescription, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST
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
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
_NO_OFFSET = -1
_PATIENCE_MS = 5_000
"""Maximum time in ms to wait for a leader's response to a request for the end of the tiered offsets."""
_UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
# First ListOffsets versions with a special timestamp: -3 = offset of the latest timestamp (KIP-734), EARLIEST_LOCAL
# (KIP-405), LATEST_TIERED (KIP-1005). A user may give these numbers as timestamps.
_VERSION_OF_TIMESTAMP = {-3: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_TOPIC_RESOURCE = 2


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
    """Partition in a ListOffsets response. `offset` is -1 if no record has the requested timestamp or a later one."""

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


def isolation_code(isolation: IsolationLevel) -> int:
    """Return the isolation level's number in Kafka's requests: 1 for read_committed, 0 for read_uncommitted."""
    return 1 if isolation is IsolationLevel.READ_COMMITTED else 0


class BrokerOffsetReader(OffsetReader):
    """`OffsetReader` that asks a cluster's brokers. Each leader gets one request for all its partitions.

    `close` does not close the client, which is shared.
    """

    def __init__(self, client: BrokerClient, isolation: IsolationLevel) -> None:
        self._client = client
        self._isolation = isolation

    def partitions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        if not topics:
            return {}
        return {topic: _described(metadata) for topic, metadata in self._client.metadata(topics).items()}

    def matching(self, accepts: Callable[[str], bool]) -> dict[str, TopicDescription]:
        topics = self._client.metadata().items()
        return {name: _described(topic) for name, topic in topics if not topic.internal and accepts(name)}

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list(dict.fromkeys(partitions, LATEST))

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_UNCOMMITTED)

    def topic_configs(self, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
        return topic_configs(self._client, topics, names) if topics else {}

    def for_timestamps(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return, by partition, the first offset whose timestamp is at or after `timestamps[partition]` (ms).

        None: no record has such a timestamp.

        Every offset is requested twice. A broker searches for a timestamp in remote storage first and then on its own
        disk (`RemoteLogOffsetReader`). If a segment moves to remote storage between the two searches, the broker misses
        the segment, and responds with a later offset or none. By the second request the segment is in remote storage.
        No response is too early, so the earlier of the two offsets is returned.
        """
        first, second = (self._list(timestamps) for _ in range(2))
        earlier = {partition: _earlier(first[partition], second[partition]) for partition in timestamps}
        return _none_where_missing(earlier)

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        return GroupOffsets(self._client, group).committed(partitions)

    def earliest_local(
        self, partitions: Collection[TopicPartition], patience_ms: int | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return, by partition, the first offset that the leader still has on its disk (KIP-405; Kafka 3.6 or newer).

        None: the leader has no offset on its disk. If `patience_ms` is given, None also means that there is no leader,
        or that it did not respond within `patience_ms`.

        Raises:
            BrokerError, CorruptDataError: a partition has an error; if `patience_ms` is given, an error that is not
                retriable.
        """
        if patience_ms is None:
            return _none_where_missing(self._list(dict.fromkeys(partitions, EARLIEST_LOCAL)))
        answer = self.special_offsets(EARLIEST_LOCAL, partitions, patience_ms)
        for fault in answer.faults.values():
            if not fault.retriable:
                raise fault
        return _none_where_missing({**dict.fromkeys(answer.faults, _NO_OFFSET), **answer.found})

    def tiered_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        last = self.special_offsets(LATEST_TIERED, partitions, _PATIENCE_MS).found
        return {partition: offset + 1 for partition, offset in last.items() if offset != _NO_OFFSET}

    def special_offsets(
        self, special: int, partitions: Collection[TopicPartition], patience_ms: int | None
    ) -> PartialAnswer[TopicPartition, int]:
        """Request a special offset of each partition, and return for each partition the offset or an error.

        `special` is EARLIEST, LATEST, EARLIEST_LOCAL or LATEST_TIERED. The offset is -1 if the partition has no such
        offset. `patience_ms` None: `default.api.timeout.ms`.

        Raises:
            BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
                exist.
        """
        client = self._client
        request = ListOffsets(dict.fromkeys(partitions, special), self._isolation, client.config.request_timeout_ms)
        return client.run(lambda: ask_each_leader(client, request, partitions, patience_ms))

    def _list(
        self, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        client = self._client
        return client.run(lambda: list_offsets(client, timestamps, isolation or self._isolation, client.deadline()))


async def list_offsets(
    client: BrokerClient, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel, deadline: Deadline
) -> dict[TopicPartition, int]:
    """Request the offset for each partition's timestamp from its leader, and return it by partition; -1: none exists.

    Runs on the network thread. Special timestamps, such as EARLIEST, are described at `ListOffsets`.
    """
    request = ListOffsets(timestamps, isolation, client.config.request_timeout_ms)
    return await ask_leaders(client, request, timestamps, deadline)


def _described(topic: TopicMetadata) -> TopicDescription:
    return TopicDescription(topic.topic, topic.topic_id, tuple(topic.partitions), topic.internal)


class ListOffsets(LeaderRequest[int]):
    """ListOffsets request to leaders. Its result is one offset per partition; -1: there is no such offset.

    `timestamps` has a timestamp in milliseconds by partition: the result is the first offset whose timestamp is at or
    after it. EARLIEST, LATEST, EARLIEST_LOCAL or LATEST_TIERED in place of a timestamp asks for that special offset.
    `timeout_ms` is the longest time that a broker may take to respond.
    """

    needed_acl = "DESCRIBE on the topic"

    def __init__(self, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel, timeout_ms: int) -> None:
        self._timestamps = timestamps
        self._isolation = isolation_code(isolation)
        self._timeout_ms = timeout_ms

    def request(self, topics: list[ListOffsetsTopic]) -> Any:
        requested = {partition.timestamp for topic in topics for partition in topic.partitions}
        min_version = max(_VERSION_OF_TIMESTAMP.get(timestamp, FIRST_FLEXIBLE) for timestamp in requested)
        return ListOffsetsRequest(
            isolation_level=self._isolation, topics=topics, timeout_ms=self._timeout_ms, min_version=min_version
        )

    def topic(self, name: str, partitions: list[Any]) -> ListOffsetsTopic:
        return ListOffsetsTopic(name, partitions)

    def partition(self, partition: TopicPartition, leader_epoch: int) -> ListOffsetsPartition:
        return ListOffsetsPartition(partition.partition, leader_epoch, self._timestamps[partition])

    def results(self, response: Any) -> Iterable[tuple[TopicPartition, int, int]]:
        for topic in response.topics or ():
            for result in topic.partitions or ():
                partition = TopicPartition(topic.name, result.partition_index)
                if result.error_code == _UNSUPPORTED_FOR_MESSAGE_FORMAT:  # the log is too old to have timestamps
                    yield partition, 0, _NO_OFFSET
                else:
                    yield partition, result.error_code, result.offset

    def check(self, partition: TopicPartition, result: int) -> None:
        lowest = 0 if self._timestamps.get(partition) in (EARLIEST, LATEST) else _NO_OFFSET
        if result < lowest:
            raise CorruptDataError(f"partition {partition}: a broker responded with the offset {result}")


def _earlier(first: int, second: int) -> int:
    """Return the smaller of two offsets. If one of them is -1 (no offset), return the other offset."""
    return max(first, second) if _NO_OFFSET in (first, second) else min(first, second)


def _none_where_missing(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    return {partition: None if offset == _NO_OFFSET else offset for partition, offset in offsets.items()}


def topic_configs(client: BrokerClient, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
    """Request the topics' settings in `names` from a broker, and return for each topic the values by setting name.

    Topics whose settings the broker does not report, because of an error or a missing ACL, are left out.

    Raises:
        BrokerError: no broker responds, or the broker does not support DescribeConfigs.
    """
    kind = DescribeConfigsRequest.DescribeConfigsResource
    response = client.ask_any_broker(
        lambda: DescribeConfigsRequest(
            resources=[
                kind(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names))
                for topic in sorted(topics)
            ]
        )
    )
    return {
        result.resource_name: {config.name: config.value for config in result.configs if config.value is not None}
        for result in response.results
        if not result.error_code
    }
