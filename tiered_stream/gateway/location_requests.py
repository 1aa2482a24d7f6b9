"""Fetch requests that ask for locations: what they want. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tiered_stream.broker.location_messages import FIRST_VERSION, NO_SESSION, LocationFetchRequest
from tiered_stream.gateway.frames import FrameError, RequestHead, body_of_flexible
from tiered_stream.gateway.reader_apis import FETCH
from tiered_stream.gateway.rewrite import NEWEST_VERSIONS
from tiered_stream.model import STORAGE_FORMAT

LARGEST_REQUEST = 4 << 20
"""Of a Fetch that may ask for locations: about 100,000 partitions."""

LEAST_PART_BYTES, LARGEST_PART_BYTES = 64 << 10, 1 << 31
"""Bounds for the parts that a client may have segments cut into. No segment is larger than the second."""

_ASKED = b"\xe0\x09\x01\x01"  # tag 1248, one byte, true
_READ_COMMITTED = 1
_PARTITION_BYTES = 40


@dataclass(frozen=True, slots=True)
class TopicIdIndex:
    """A partition as Fetch names it."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class LocationRequest:
    """What a client wants to know, as in `broker.location_messages`; by partition the offsets from `start` to `end`.

    `asked`: all partitions that the client wants to know something of, where `wanted` are those that can be located.
    """

    head: RequestHead
    header: bytes = field(repr=False)
    message: LocationFetchRequest = field(repr=False)
    wanted: Mapping[TopicIdIndex, tuple[int, int]]
    committed: bool
    max_segments: int
    local_too: bool
    part_bytes: int
    offsets_only: bool
    asked: Collection[TopicIdIndex] = ()

    @property
    def size(self) -> int:
        """About the bytes of the request."""
        return len(self.header) + _PARTITION_BYTES * len(self.wanted)

    def topics(self) -> set[UUID]:
        """The topics of which something is wanted."""
        return {each.topic_id for each in self.wanted}


def may_ask(head: RequestHead, content: bytes) -> bool:
    """Whether the content of a Fetch is worth a look by `location_request`."""
    return FIRST_VERSION <= head.api_version <= NEWEST_VERSIONS[FETCH] and _ASKED in content


def location_request(head: RequestHead, content: bytes) -> LocationRequest | None:
    """The request for locations in a Fetch; None: it is a plain one, or shares no storage format with us.

    Raises:
        FrameError: it is not a Fetch at all.
    """
    try:
        body = body_of_flexible(content)
        header = content[: body.position]
        message = LocationFetchRequest.decode_body(head.api_version, body)
    except ValueError as error:
        raise FrameError(f"not a Fetch of version {head.api_version}: {error}") from error
    if not message.remote_log_segment_location_requested or message.session_epoch != NO_SESSION:
        return None
    if STORAGE_FORMAT not in message.supported_storage_format_versions:
        return None
    wanted = {
        TopicIdIndex(topic.topic_id, partition.partition): (
            partition.fetch_offset,
            max(partition.fetch_offset, partition.remote_log_segment_end_offset),
        )
        for topic in message.topics
        for partition in topic.partitions
        if topic.topic_id is not None and partition.fetch_offset >= 0
    }
    return LocationRequest(
        head,
        header,
        message,
        wanted,
        committed=message.isolation_level == _READ_COMMITTED,
        max_segments=max(1, message.max_remote_log_segments),
        local_too=message.local_segments_wanted,
        part_bytes=_part_bytes(message.remote_log_segment_part_bytes),
        offsets_only=message.offsets_only,
    )


def _part_bytes(asked: int) -> int:
    """As near to what was asked for as it may be; 0: segments are not cut."""
    return min(max(asked, LEAST_PART_BYTES), LARGEST_PART_BYTES) if asked > 0 else 0
