"""The broker's authorization: the Fetch that asks for it, and the answer, to be filled with locations. No I/O.

It is asked for by a Fetch at the end of the log. The broker checks READ, the leader epoch and the topic id as ever, and
has no record to send and nothing to get from remote storage. Its answer also tells where the log starts and ends.

Where the log ends, the gateway asks by its own login. So before that, for topics that the connection has not read from
yet, a Fetch beyond any log shows whether the client may READ them: nothing is asked for who may not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from tiered_stream.broker.flexible_versions import NO_TAGS, Reader
from tiered_stream.broker.location_messages import (
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
    WantedPartition,
)
from tiered_stream.gateway.frames import CORRELATION_ID_BYTES, FrameError
from tiered_stream.gateway.location_requests import LocationRequest, TopicIdIndex

_BEYOND_ANY_LOG = (1 << 63) - 1
_OFFSET_OUT_OF_RANGE = 1
_AFTER_AUTHORIZATION = frozenset({0, _OFFSET_OUT_OF_RANGE, 6, 74, 75})
"""Error codes that brokers give only to who may READ: a leader that is elsewhere, and the two of leader epochs."""
_THROTTLING_QUOTA_EXCEEDED = 89
_OFFSET_NOT_AVAILABLE = 78  # retriable: where the log ends has just changed


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """A partition that the client may read: the wanted offsets, and where the log ends for the client."""

    partition: TopicIdIndex
    start: int
    end: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """Segments in their encoded form (None: none), complete up to `located_end`."""

    segments: bytes | None
    located_end: int


def authorization_request(request: LocationRequest, log_ends: Mapping[TopicIdIndex, int]) -> bytes:
    """The Fetch that asks the broker for authorization, with the client's own header."""
    topics = [
        FetchTopic(topic.topic_id, [_at_end(topic.topic_id, each, log_ends) for each in topic.partitions])
        for topic in request.message.topics
    ]
    fetch = LocationFetchRequest(topics=topics, isolation_level=request.message.isolation_level)
    return request.header + fetch.encode_body(request.head.api_version)


def read_probe(request: LocationRequest, topics: Collection[UUID]) -> bytes:
    """The Fetch that shows whether the client may READ the topics, with the client's own header."""
    asked = [
        FetchTopic(topic.topic_id, [WantedPartition(topic.partitions[0].partition, -1, _BEYOND_ANY_LOG)])
        for topic in request.message.topics
        if topic.topic_id in topics and topic.partitions
    ]
    fetch = LocationFetchRequest(topics=asked, isolation_level=request.message.isolation_level)
    return request.header + fetch.encode_body(request.head.api_version)


def readable_topics(content: bytes) -> set[UUID]:
    """The topics that a client may READ, by the broker's answer to `read_probe`.

    Raises:
        FrameError: the content is no Fetch answer.
    """
    message = _fetch_response(content)
    return {
        topic.topic_id
        for topic in message.responses
        for answer in topic.partitions
        if not message.error_code and topic.topic_id is not None and answer.error_code in _AFTER_AUTHORIZATION
    }


def _fetch_response(content: bytes) -> LocationFetchResponse:
    body = Reader(content, CORRELATION_ID_BYTES)
    try:
        body.tags()
        return LocationFetchResponse.decode_body(body)
    except ValueError as error:
        raise FrameError(f"not a Fetch answer: {error}") from error


def _at_end(topic_id: UUID | None, partition: WantedPartition, log_ends: Mapping[TopicIdIndex, int]) -> WantedPartition:
    offset = partition.fetch_offset
    if topic_id is not None:
        offset = log_ends.get(TopicIdIndex(topic_id, partition.partition), offset)
    return WantedPartition(partition.partition, partition.current_leader_epoch, offset)


class AuthorizationAnswer:
    """The broker's answer to `authorization_request`, to be filled with locations.

    Raises:
        FrameError: the content is no Fetch answer.
    """

    def __init__(self, request: LocationRequest, content: bytes) -> None:
        self._request = request
        self._correlation_id = content[:CORRELATION_ID_BYTES]
        self._message = _fetch_response(content)

    def readable(self) -> list[ReadablePartition]:
        """The partitions without an error, from their log start on."""
        if self._message.error_code:
            return []
        wanted = self._request.wanted
        return [
            ReadablePartition(where, start, max(start, wanted[where][1]), self._log_end(answer))
            for topic in self._message.responses
            for answer in topic.partitions
            if topic.topic_id is not None and not answer.error_code
            for where in [TopicIdIndex(topic.topic_id, answer.partition_index)]
            if where in wanted
            for start in [max(wanted[where][0], answer.log_start_offset)]
        ]

    def results(self, answers: Collection[TopicIdIndex]) -> Counter[str]:
        """How many of the client's partitions were answered, refused by the broker, throttled by it, or left to it.

        A broker whose quota the client has used up leaves all partitions out of its answer, and says for how long.
        """
        codes = {
            TopicIdIndex(topic.topic_id, each.partition_index): each.error_code
            for topic in self._message.responses
            if topic.topic_id is not None
            for each in topic.partitions
        }
        whole = self._message.error_code
        throttled = whole == _THROTTLING_QUOTA_EXCEEDED or (not whole and self._message.throttle_time_ms > 0)
        return Counter(
            "answered" if where in answers
            else "refused" if codes.get(where)
            else "throttled" if throttled and where not in codes
            else "failed"
            for where in self._request.asked or self._request.wanted
        )  # fmt: skip

    def encode(self, answers: Mapping[TopicIdIndex, PartitionAnswer]) -> list[bytes]:
        """The response for the client, in pieces; partitions that are not in `answers` get no locations."""
        topics = [
            FetchTopic(topic.topic_id, [self._filled(topic.topic_id, each, answers) for each in topic.partitions])
            for topic in self._message.responses
        ]
        return [self._correlation_id, NO_TAGS, *replace(self._message, responses=topics).pieces()]

    def _log_end(self, answer: LocatedPartition) -> int:
        return answer.last_stable_offset if self._request.committed else answer.high_watermark

    def _filled(
        self, topic_id: UUID | None, answer: LocatedPartition, answers: Mapping[TopicIdIndex, PartitionAnswer]
    ) -> LocatedPartition:
        where = topic_id and TopicIdIndex(topic_id, answer.partition_index)
        if not where or where not in self._request.wanted:
            return answer
        if answer.error_code == _OFFSET_OUT_OF_RANGE:  # the end that we asked at, not the client's offset
            return replace(answer, error_code=_OFFSET_NOT_AVAILABLE)
        found = answers.get(where)
        if not found:
            return answer
        return replace(answer, remote_log_segments=found.segments or b"", located_end_offset=found.located_end)
