"""Decoder of Fetch requests that ask for locations of segments. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tiered_stream.broker.wire.location_messages import FIRST_VERSION, NO_SESSION, LocationFetchRequest
from tiered_stream.gateway.protocol.api_versions import FETCH, READER_VERSIONS
from tiered_stream.gateway.protocol.frames import FrameError, RequestHead, body_of_flexible
from tiered_stream.model import STORAGE_FORMAT

MAX_REQUEST_BYTES = 4 << 20
"""Maximum bytes of a Fetch that may ask for locations, which is enough for about 100,000 partitions."""

MIN_PART_BYTES, MAX_PART_BYTES = 64 << 10, 1 << 31
"""Minimum and maximum size of the parts into which a client may have segments cut. No segment exceeds the maximum."""

_LOCATION_REQUESTED_TAG = b"\xe0\x09\x01\x01"  # tag 1248, one byte, true
_READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """Partition identified as in Fetch: by topic id and partition number."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class LocationRequest:
    """Decoded Fetch request for segment locations.

    `head` has the request's API key, version and correlation id, `header` its whole header as bytes, and `message` its
    decoded body. `size` is the size of the client's request in bytes. `ranges` has the start and end offsets (end
    exclusive) by partition. `committed` is True for read_committed. `max_segments` is the maximum number of segments in
    the response. `part_bytes` is the size in bytes of the parts into which segments are cut; 0: segments are not cut.
    `requested` has all partitions of the client's request if `ranges` was reduced to the partitions with a known log
    end; otherwise it is empty.
    """

    head: RequestHead
    header: bytes = field(repr=False)
    message: LocationFetchRequest = field(repr=False)
    size: int
    ranges: Mapping[TopicIdPartition, tuple[int, int]]
    committed: bool
    max_segments: int
    part_bytes: int
    requested: Collection[TopicIdPartition] = ()

    def topics(self) -> set[UUID]:
        """Return the ids of the topics whose partitions are in `ranges`."""
        return {partition.topic_id for partition in self.ranges}


def possibly_asks(head: RequestHead, content: bytes) -> bool:
    """Return whether a request possibly asks for locations, by a quick check.

    If the result is True, `location_request` decides. If it is False, the gateway passes the request on unchanged.

    Args:
        content: the request's first bytes, as many as `ConnectionState.bytes_needed` returns.
    """
    return (
        head.api_key == FETCH
        and FIRST_VERSION <= head.api_version <= READER_VERSIONS[FETCH][1]
        and _LOCATION_REQUESTED_TAG in content
    )


def location_request(head: RequestHead, content: bytes) -> LocationRequest | None:
    """Return the location request in the Fetch `content`, which begins with the request's header.

    Return None if the Fetch asks for no locations, uses a fetch session (KIP-227), or names no storage format that the
    gateway supports.

    Raises:
        FrameError: the content is not a Fetch.
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
    ranges = {
        TopicIdPartition(topic.topic_id, partition.partition): (
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
        len(content),
        ranges,
        committed=message.isolation_level == _READ_COMMITTED,
        max_segments=max(1, message.max_remote_log_segments),
        part_bytes=_part_bytes(message.remote_log_segment_part_bytes),
    )


def _part_bytes(requested: int) -> int:
    """Return `requested` limited to the range from 64 KiB to 2 GiB; 0 (segments are not cut) if it is not positive."""
    return min(max(requested, MIN_PART_BYTES), MAX_PART_BYTES) if requested > 0 else 0
