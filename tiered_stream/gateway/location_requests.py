"""Fetch requests that ask for locations: what they want, the Fetch that asks for authorization, and the answer. No I/O.

Authorization is asked for by a Fetch at the end of the log. The broker checks READ, the leader epoch and the topic id
as ever, and has no record to send and nothing to get from remote storage. Its answer also tells where the log starts
and ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from uuid import UUID

from tiered_stream.broker.fetch_messages import FIRST_VERSION, STORAGE_FORMAT, FetchRequest, FetchResponse
from tiered_stream.gateway.frames import FrameError, RequestHead
from tiered_stream.gateway.rewrite import FETCH, NEWEST_VERSIONS, decode

LARGEST_REQUEST = 4 << 20
"""Of a Fetch that may ask for locations: about 100,000 partitions."""

_ASKED = b"\xe0\x09\x01\x01"  # tag 1248, one byte, true
_NO_SESSION = -1
_READ_COMMITTED = 1
_OFFSET_OUT_OF_RANGE = 1
_OFFSET_NOT_AVAILABLE = 78  # retriable: where the log ends has just changed


@dataclass(frozen=True, slots=True)
class TopicIdIndex:
    """A partition as Fetch names it."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class LocationRequest:
    """What a client wants to know, as in `broker.fetch_messages`; by partition the offsets from `start` to `end`."""

    head: RequestHead
    message: Any = field(repr=False)
    wanted: Mapping[TopicIdIndex, tuple[int, int]]
    committed: bool
    max_segments: int
    local_too: bool
    part_bytes: int
    offsets_only: bool


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


def may_ask(head: RequestHead, content: bytes) -> bool:
    """Whether the content of a Fetch is worth a look by `location_request`."""
    return FIRST_VERSION <= head.api_version <= NEWEST_VERSIONS[FETCH] and _ASKED in content


def location_request(head: RequestHead, content: bytes) -> LocationRequest | None:
    """The request for locations in a Fetch; None: it is a plain one, or shares no storage format with us.

    Raises:
        FrameError: it is not a Fetch at all.
    """
    message = _decode_request(content, head.api_version)
    if not message.remote_log_segment_location_requested or message.session_epoch != _NO_SESSION:
        return None
    if STORAGE_FORMAT not in (message.supported_storage_format_versions or ()):
        return None
    wanted = {
        TopicIdIndex(topic.topic_id, partition.partition): (
            partition.fetch_offset,
            max(partition.fetch_offset, partition.remote_log_segment_end_offset),
        )
        for topic in message.topics or ()
        for partition in topic.partitions or ()
        if topic.topic_id is not None and partition.fetch_offset >= 0
    }
    return LocationRequest(
        head,
        message,
        wanted,
        committed=message.isolation_level == _READ_COMMITTED,
        max_segments=max(1, message.max_remote_log_segments),
        local_too=message.local_segments_wanted,
        part_bytes=max(0, message.remote_log_segment_part_bytes),
        offsets_only=message.offsets_only,
    )


def _decode_request(content: bytes, version: int) -> Any:
    """By reflection: kafka-python's generated code would work for hours at a number of a million bytes."""
    data = BytesIO(content)
    try:
        header = FetchRequest.parse_header(data, version=version)
        message = FetchRequest._struct.decode(data, version=version, compact=True, tagged=True, data_class=FetchRequest)
    except Exception as error:
        raise FrameError(f"not a Fetch of version {version}: {type(error).__name__}: {error}") from error
    message._header = header
    return message


def authorization_request(request: LocationRequest, log_ends: Mapping[TopicIdIndex, int]) -> bytes:
    """The Fetch that asks the broker for authorization, with the client's own header."""
    message = request.message
    kind = FetchRequest.FetchTopic
    topics = [
        kind(topic_id=topic.topic_id, partitions=[_at_end(topic.topic_id, each, log_ends) for each in topic.partitions])
        for topic in message.topics
    ]
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=message.isolation_level,
        topics=topics, forgotten_topics_data=[], rack_id="", version=request.head.api_version,
    )  # fmt: skip
    fetch._header = message._header
    return bytes(fetch.encode(version=request.head.api_version, header=True))


def _at_end(topic_id: UUID, partition: Any, log_ends: Mapping[TopicIdIndex, int]) -> Any:
    return FetchRequest.FetchTopic.FetchPartition(
        partition=partition.partition,
        current_leader_epoch=partition.current_leader_epoch,
        fetch_offset=log_ends.get(TopicIdIndex(topic_id, partition.partition), partition.fetch_offset),
        partition_max_bytes=1,
    )


class AuthorizationAnswer:
    """The broker's answer to `authorization_request`, to be filled with locations."""

    def __init__(self, request: LocationRequest, content: bytes) -> None:
        self._request = request
        self._message = decode(FetchResponse, content, request.head.api_version)

    def readable(self) -> list[ReadablePartition]:
        """The partitions without an error, from their log start on."""
        if self._message.error_code:
            return []
        found = []
        for where, answer in self._partitions():
            if answer.error_code == _OFFSET_OUT_OF_RANGE:  # the end that we asked at, not the client's offset
                answer.error_code = _OFFSET_NOT_AVAILABLE
            if not answer.error_code and where in self._request.wanted:
                start, end = self._request.wanted[where]
                start = max(start, answer.log_start_offset)
                found.append(ReadablePartition(where, start, max(start, end), self._log_end(answer)))
        return found

    def encode(self, answers: Mapping[TopicIdIndex, PartitionAnswer]) -> bytes:
        """The response for the client; partitions that are not in `answers` get no locations."""
        for where, answer in self._partitions():
            answer.records, answer.aborted_transactions, answer.preferred_read_replica = None, None, -1
            found = answers.get(where)
            if found is not None:
                answer.remote_log_segments = found.segments or []
                answer.located_end_offset = found.located_end
        return bytes(self._message.encode(header=True))

    def _partitions(self) -> list[tuple[TopicIdIndex, Any]]:
        return [
            (TopicIdIndex(topic.topic_id, answer.partition_index), answer)
            for topic in self._message.responses or ()
            for answer in topic.partitions or ()
        ]

    def _log_end(self, answer: Any) -> int:
        end = answer.last_stable_offset if self._request.committed else answer.high_watermark
        return int(end)
