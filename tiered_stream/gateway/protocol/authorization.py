"""Fetch that asks the broker for authorization to read, and its response, which is filled with locations. No I/O.

The Fetch starts at the end of the log. The broker checks READ, the leader epoch and the topic id as for any Fetch. But
the broker has no record to send, and nothing to read from remote storage. The response also states where the log starts
and ends.

The gateway asks for the end of the log with its own login, but only for topics that the client may READ. So for topics
that the connection has not read yet, the gateway first sends a Fetch at an offset beyond any log. The response shows
whether the client may READ the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from tiered_stream.broker.wire.location_messages import (
    FetchPartition,
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
)
from tiered_stream.gateway.protocol.frames import CORRELATION_ID_BYTES, FrameError
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdPartition
from tiered_stream.records.flexible_versions import NO_TAGS, Reader

_BEYOND_ANY_LOG = (1 << 63) - 1
_OFFSET_OUT_OF_RANGE = 1
_AFTER_AUTHORIZATION = frozenset({0, _OFFSET_OUT_OF_RANGE, 6, 74, 75})
"""Error codes that brokers return only if the client may READ.

They are no error, OFFSET_OUT_OF_RANGE (1), NOT_LEADER_OR_FOLLOWER (6), FENCED_LEADER_EPOCH (74) and
UNKNOWN_LEADER_EPOCH (75).
"""
_THROTTLING_QUOTA_EXCEEDED = 89
_OFFSET_NOT_AVAILABLE = 78  # retriable: the client asks again, because the log's end has just changed


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """Partition that the client may read: the requested offsets from `start` to `end` (exclusive), and the log's end.

    `log_end_offset` is the last stable offset under read_committed, and the high watermark under read_uncommitted.
    """

    partition: TopicIdPartition
    start: int
    end: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class PartitionResponse:
    """Encoded locations (`segments`) of a partition's requested offsets below `located_end`; None: there are none."""

    segments: bytes | None
    located_end: int


def authorization_request(request: LocationRequest, log_ends: Mapping[TopicIdPartition, int]) -> bytes:
    """Return the Fetch that asks the broker whether the client may read the partitions of `request`.

    It has the header of the client's own request. For each partition it starts at the log's end in `log_ends`, or at
    the client's offset if `log_ends` lacks the partition.
    """

    def at_end(topic_id: UUID | None, partition: FetchPartition) -> FetchPartition:
        offset = partition.fetch_offset
        if topic_id is not None:
            offset = log_ends.get(TopicIdPartition(topic_id, partition.partition), offset)
        return FetchPartition(partition.partition, partition.current_leader_epoch, offset)

    return _fetch(request, [
        FetchTopic(topic.topic_id, [at_end(topic.topic_id, partition) for partition in topic.partitions])
        for topic in request.message.topics
    ])  # fmt: skip


def read_probe(request: LocationRequest, topics: Collection[UUID]) -> bytes:
    """Return a Fetch whose response shows which of the topics with the ids `topics` the client may READ.

    It has the header of the client's own request, and asks for one partition of each topic, at an offset beyond any
    log.
    """
    return _fetch(request, [
        FetchTopic(topic.topic_id, [FetchPartition(topic.partitions[0].partition, -1, _BEYOND_ANY_LOG)])
        for topic in request.message.topics
        if topic.topic_id in topics and topic.partitions
    ])  # fmt: skip


def _fetch(request: LocationRequest, topics: Sequence[FetchTopic[FetchPartition]]) -> bytes:
    fetch = LocationFetchRequest(topics=topics, isolation_level=request.message.isolation_level)
    return request.header + fetch.encode_body(request.head.api_version)


def readable_topics(content: bytes) -> set[UUID]:
    """Return the ids of the topics that a client may READ, from the broker's response to `read_probe`.

    The set is empty if the whole response has an error.

    Raises:
        FrameError: the content is not a Fetch response.
    """
    message = fetch_response(content)
    return {
        topic.topic_id
        for topic in message.responses
        for partition in topic.partitions
        if not message.error_code and topic.topic_id is not None and partition.error_code in _AFTER_AUTHORIZATION
    }


def fetch_response(content: bytes) -> LocationFetchResponse:
    """Decode a Fetch response of a flexible version; `content` begins with the correlation id.

    Raises:
        FrameError: the content is not a Fetch response.
    """
    body = Reader(content, CORRELATION_ID_BYTES)
    try:
        body.tags()
        return LocationFetchResponse.decode_body(body)
    except ValueError as error:
        raise FrameError(f"not a Fetch response: {error}") from error


class AuthorizationResponse:
    """Response of the broker to `authorization_request`, into which locations are filled.

    Args:
        request: the client's location request.
        content: the broker's response, from its correlation id on.

    Raises:
        FrameError: the content is not a Fetch response.
    """

    def __init__(self, request: LocationRequest, content: bytes) -> None:
        self._request = request
        self._correlation_id = content[:CORRELATION_ID_BYTES]
        self._message = fetch_response(content)
        self._partitions = {
            TopicIdPartition(topic.topic_id, partition.partition_index): partition
            for topic in self._message.responses
            for partition in topic.partitions
            if topic.topic_id is not None
        }

    def readable(self) -> list[ReadablePartition]:
        """Return the requested partitions that the broker's response has without an error.

        The offsets of a partition begin at the requested start, or at the log start offset if that is higher.
        """
        return [
            ReadablePartition(partition, start, max(start, self._request.ranges[partition][1]), self._log_end(response))
            for partition, response in self._partitions.items()
            if not self._message.error_code and not response.error_code and partition in self._request.ranges
            for start in [max(self._request.ranges[partition][0], response.log_start_offset)]
        ]

    def results(self, located: Collection[TopicIdPartition]) -> Counter[str]:
        """Count the client's partitions by result: `answered`, `refused` (by the broker), `throttled` or `failed`.

        If the client has used up its quota, the broker's response has a throttle time and no partitions.

        Args:
            located: the partitions that get locations.
        """
        error_code = self._message.error_code
        throttled = error_code == _THROTTLING_QUOTA_EXCEEDED or (not error_code and self._message.throttle_time_ms > 0)
        return Counter(
            "answered" if partition in located
            else "refused" if partition in self._partitions and self._partitions[partition].error_code
            else "throttled" if throttled and partition not in self._partitions
            else "failed"
            for partition in self._request.requested or self._request.ranges
        )  # fmt: skip

    def encode(self, locations: Mapping[TopicIdPartition, PartitionResponse]) -> list[bytes]:
        """Return the response for the client, in pieces: the broker's response with `locations` filled in.

        Partitions that are not in `locations` get no locations. An error OFFSET_OUT_OF_RANGE is about the log end that
        the gateway has requested, not about the client's offset. It becomes OFFSET_NOT_AVAILABLE, so that the client
        asks again.
        """
        topics = [
            FetchTopic(
                topic.topic_id, [self._filled(topic.topic_id, response, locations) for response in topic.partitions]
            )
            for topic in self._message.responses
        ]
        return [self._correlation_id, NO_TAGS, *replace(self._message, responses=topics).pieces()]

    def _log_end(self, response: LocatedPartition) -> int:
        return response.last_stable_offset if self._request.committed else response.high_watermark

    def _filled(
        self, topic_id: UUID | None, response: LocatedPartition, locations: Mapping[TopicIdPartition, PartitionResponse]
    ) -> LocatedPartition:
        partition = topic_id and TopicIdPartition(topic_id, response.partition_index)
        if not partition or partition not in self._request.ranges:
            return response
        if response.error_code == _OFFSET_OUT_OF_RANGE:  # concerns the log end that we sent, not the client's offset
            return replace(response, error_code=_OFFSET_NOT_AVAILABLE)
        located = locations.get(partition)
        if located is None:
            return response
        return replace(response, remote_log_segments=located.segments or b"", located_end_offset=located.located_end)
