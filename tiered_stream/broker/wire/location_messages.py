"""Fetch requests and responses for segment locations: Kafka's fields, and fields of KIP-1248 and KIP-1254.

The KIPs define these fields for a new Fetch version, but its number went to another KIP. So we send them as tagged
fields of the existing flexible versions: a broker that does not know a tagged field must skip it. Names with a star are
not in the KIPs.

    FetchRequest
        1248  RemoteLogSegmentLocationRequested   bool
        1254  SupportedStorageFormatVersions      []string
        1255  MaxRemoteLogSegments *              int32, most segments that the response may name
        1256  LocalSegmentsWanted *               bool, also name segments that the broker still has on its own disk
        1257  RemoteLogSegmentPartBytes *         int64, cut larger segments at batch starts into parts of about this
                                                  many bytes; neighbouring parts may share some bytes
        1258  OffsetsOnly *                       bool, no byte positions, aborted transactions or signed URLs
    FetchRequest, partition
        1248  RemoteLogSegmentEndOffset *         int64, exclusive
    FetchResponse, partition
        1248  RemoteLogSegments                   array of structs, see `encode_segment`
        1249  LocatedEndOffset *                  int64, exclusive: an offset below it that is in no segment is not
                                                  tiered; for offsets from it on, send another request

We encode and decode these messages ourselves. kafka-python drops unknown tagged fields when it encodes a message. When
it decodes one, it copies the rest of the message for each section of tagged fields, and 100,000 segments may be 60 MB.
Fetches for records use kafka-python's codec, see `record_fetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from struct import Struct
from typing import Any, Generic, TypeVar
from uuid import UUID

from tiered_stream.broker.wire.kafka_python import OwnRequest
from tiered_stream.model import (
    AbortedTransaction,
    ByteRange,
    LeaderEpoch,
    OffsetRange,
    RemoteLogSegment,
    SegmentLocation,
    TopicPartition,
)
from tiered_stream.records import flexible_versions as flexible

LOCATION_FEATURE = "remote.log.segment.location"
"""Feature in ApiVersions that a broker has if it responds with segment locations."""

LOCATIONS, SIGNED_LOCATIONS = 1, 2
"""Versions of `LOCATION_FEATURE`: with 1, the broker names segment locations; with 2, it also sends signed URLs."""

LOCATION_TAG = 1248
FIRST_VERSION = 13
"""First Fetch version with locations: it is flexible, and has topics by id."""

_LAST_VERSION = 17
_FIRST_WITHOUT_REPLICA_ID = 15
_FORMATS_TAG = 1254
_LOCATED_END_TAG = 1249
_KAFKA_TAGS = range(3)  # diverging epoch, current leader, snapshot id

_NO_END = (1 << 63) - 1
_NOT_LOCATED = -1
_MAX_RECORD_BYTES = 1
"""Maximum of record bytes that we request, so that a broker without KIP-1248 returns only one record batch."""

_BOOL, _INT32, _INT64 = Struct(">?"), Struct(">i"), Struct(">q")
_WAIT_AND_SIZES = Struct(">iiib")  # max wait ms, min bytes, max bytes, isolation level
_SESSION = Struct(">ii")  # id, epoch
NO_SESSION = -1
"""Session epoch of a Fetch that names all its partitions (KIP-227)."""
_REQUEST_PARTITION = Struct(
    ">iiqiqi"
)  # partition, current leader epoch, offset, last fetched epoch, log start offset, max bytes
_RESPONSE = Struct(">ihi")  # throttle time ms, error code, session id
_RESPONSE_PARTITION = Struct(">ihqqq")  # partition, error code, high watermark, last stable offset, log start offset
_TRANSACTION = Struct(">qqx")  # producer id, first offset
_NUMBER_TAGS = (
    (LOCATION_TAG, "remote_log_segment_location_requested", _BOOL),
    (1255, "max_remote_log_segments", _INT32),
    (1256, "local_segments_wanted", _BOOL),
    (1257, "remote_log_segment_part_bytes", _INT64),
    (1258, "offsets_only", _BOOL),
)
# No aborted transactions, no read replica, no records.
_NO_RECORDS = flexible.compact_bytes(None) + _INT32.pack(-1) + flexible.compact_bytes(None)

_LEADER_EPOCH = Struct(">iqx")
_ABORTED_TRANSACTION = Struct(">qqqx")
_SEGMENT_NUMBERS = Struct(">qqiqqiiqq")
_NO_FOLLOWING = (-1, -1)
_OFFSETS_END = 1 << 63
"""Exclusive upper bound of offsets, which are int64."""
_MIN_TOPIC_BYTES = 16 + 1 + len(flexible.NO_TAGS)
_MIN_SEGMENT_BYTES = 16 + 3 + _SEGMENT_NUMBERS.size + 2 + len(flexible.NO_TAGS)


def encode_segment(location: SegmentLocation) -> bytes:
    """Encode a location as an element of the compact array in tagged field 1248 of a partition in a Fetch response."""
    segment, offsets, byte_range = location.segment, location.offsets, location.bytes
    numbers = _SEGMENT_NUMBERS.pack(
        segment.base_offset, segment.end_offset, segment.size, offsets.start, offsets.end,
        byte_range.start, byte_range.end, *(location.following or _NO_FOLLOWING),
    )  # fmt: skip
    return b"".join(
        (
            flexible.uuid_bytes(segment.segment_id),
            flexible.compact_bytes(segment.custom_metadata),
            flexible.compact_string(location.signed_url),
            flexible.compact_string(location.storage_format),
            numbers,
            flexible.compact_array([_LEADER_EPOCH.pack(*epoch) for epoch in segment.leader_epochs]),
            flexible.compact_array([_ABORTED_TRANSACTION.pack(*aborted) for aborted in location.aborted_transactions]),
            flexible.NO_TAGS,
        )
    )


def decode_segments(data: bytes, partition: TopicPartition, topic_id: UUID) -> list[SegmentLocation]:
    """Decode the value of tagged field 1248 of `partition` in a Fetch response. See `encode_segment`.

    Raises:
        ValueError: the bytes are malformed, or a segment's fields contradict each other.
    """
    reader = flexible.Reader(data)
    try:
        locations = reader.array(_MIN_SEGMENT_BYTES, partial(_decode_segment, partition, topic_id))
    except ValueError as error:
        raise ValueError(f"it is malformed or contradicts itself ({error})") from error
    if reader.position != len(data):
        raise ValueError(f"{len(data)} bytes, {reader.position} of them are segments")
    return locations


def _decode_segment(partition: TopicPartition, topic_id: UUID, reader: flexible.Reader) -> SegmentLocation:
    segment_id, custom_metadata = reader.uuid(), reader.compact_bytes()
    signed_url, storage_format = reader.nullable_string(), reader.compact_string()
    base, last, size, start, end, first_byte, end_byte, *following = reader.unpack(_SEGMENT_NUMBERS)
    epochs = tuple(starmap(LeaderEpoch, reader.structs(_LEADER_EPOCH)))
    aborted = tuple(starmap(AbortedTransaction, reader.structs(_ABORTED_TRANSACTION)))
    reader.tags()
    if segment_id is None:
        raise ValueError("a segment without an id")
    offsets, byte_range = OffsetRange(start, end), ByteRange(first_byte, end_byte)
    if not base <= start < end <= last + 1 < _OFFSETS_END or end_byte > size:
        raise ValueError(f"segment {segment_id}: {offsets}, {byte_range}")
    segment = RemoteLogSegment(
        partition, topic_id, segment_id, base, last, size, leader_epochs=epochs, custom_metadata=custom_metadata
    )
    bounds = (following[0], following[1]) if following[0] >= 0 else None
    return SegmentLocation(segment, offsets, byte_range, aborted, signed_url, storage_format, bounds)


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class FetchTopic(Generic[P]):
    """Partitions of one topic in a Fetch request or response. `topic_id` None stands for an id of all zeros."""

    topic_id: UUID | None
    partitions: Sequence[P]


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """Partition in a request for the locations of the offsets from `fetch_offset` to an end offset (exclusive).

    The end offset is `remote_log_segment_end_offset`; by default there is none.
    """

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    remote_log_segment_end_offset: int = _NO_END

    def pieces(self) -> tuple[bytes, ...]:
        end = self.remote_log_segment_end_offset
        tags = {} if end == _NO_END else {LOCATION_TAG: _INT64.pack(end)}
        numbers = _REQUEST_PARTITION.pack(
            self.partition, self.current_leader_epoch, self.fetch_offset, -1, -1, _MAX_RECORD_BYTES
        )
        return numbers, flexible.tagged_fields(tags)

    @classmethod
    def decode(cls, reader: flexible.Reader) -> FetchPartition:
        partition, leader_epoch, offset, *_ = reader.unpack(_REQUEST_PARTITION)
        tags = reader.tags()
        end = _number(_INT64, tags[LOCATION_TAG]) if LOCATION_TAG in tags else _NO_END
        return cls(partition, leader_epoch, offset, end)


@dataclass(kw_only=True)
class LocationFetchRequest(OwnRequest):
    """Fetch request for segment locations, and for at most one record batch, without waiting for new records.

    If `remote_log_segment_location_requested` is false, no locations are requested. The module's docstring describes
    the fields of KIP-1248 and KIP-1254.
    """

    API_KEY = 1
    name = "FetchRequest"
    min_version = FIRST_VERSION
    max_version = _LAST_VERSION

    topics: Sequence[FetchTopic[FetchPartition]]
    isolation_level: int
    session_epoch: int = NO_SESSION
    remote_log_segment_location_requested: bool = False
    supported_storage_format_versions: Sequence[str] = ()
    max_remote_log_segments: int = 0
    local_segments_wanted: bool = False
    remote_log_segment_part_bytes: int = 0
    offsets_only: bool = False

    def encode_body(self, version: int) -> bytes:
        tags = {tag: layout.pack(value) for tag, name, layout in _NUMBER_TAGS if (value := getattr(self, name))}
        if self.supported_storage_format_versions:
            formats = [flexible.compact_string(version) for version in self.supported_storage_format_versions]
            tags[_FORMATS_TAG] = flexible.compact_array(formats)
        return b"".join(
            (
                _INT32.pack(-1) if version < _FIRST_WITHOUT_REPLICA_ID else b"",
                _WAIT_AND_SIZES.pack(0, 0, _MAX_RECORD_BYTES, self.isolation_level),
                _SESSION.pack(0, self.session_epoch),
                *_encoded_topics(self.topics),
                flexible.compact_array([]),  # forgotten topics
                flexible.compact_string(""),  # rack
                flexible.tagged_fields(tags),
            )
        )

    @classmethod
    def decode_body(cls, version: int, body: flexible.Reader) -> LocationFetchRequest:
        """Decode the body of a Fetch request of this version, which any client may have sent.

        Only fields that matter for segment locations are kept.

        Raises:
            ValueError: the bytes are not a Fetch request of this version.
        """
        if version < _FIRST_WITHOUT_REPLICA_ID:
            body.unpack(_INT32)
        *_, isolation_level = body.unpack(_WAIT_AND_SIZES)
        _, session_epoch = body.unpack(_SESSION)
        topics = _decode_topics(body, FetchPartition.decode)
        _decode_topics(body, lambda reader: reader.unpack(_INT32))  # forgotten topics
        body.compact_string()  # rack
        tags = body.tags()
        formats = flexible.Reader(tags.get(_FORMATS_TAG, flexible.compact_array([])))
        return cls(
            topics=topics,
            isolation_level=isolation_level,
            session_epoch=session_epoch,
            supported_storage_format_versions=formats.array(1, flexible.Reader.compact_string),
            **{name: _number(layout, tags[tag]) for tag, name, layout in _NUMBER_TAGS if tag in tags},
        )

    def decode_response(self, body: flexible.Reader) -> LocationFetchResponse:
        return LocationFetchResponse.decode_body(body)


@dataclass(frozen=True, slots=True)
class LocatedPartition:
    """Partition in a Fetch response with segment locations.

    Args:
        kafka_tags: encoded values of Kafka's own tagged fields, by tag.
        remote_log_segments: the tiered segments of the requested offsets below `located_end_offset`, encoded for
            `decode_segments`; empty: there are none.
        located_end_offset: offset (exclusive) up to which the segments are named; -1: the broker names no segments.
    """

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    kafka_tags: Mapping[int, bytes] = field(default_factory=dict)
    remote_log_segments: bytes = field(default=b"", repr=False)
    located_end_offset: int = _NOT_LOCATED

    def pieces(self) -> tuple[bytes, ...]:
        """Return the encoded partition in several pieces, so that its segments (many KB) are not copied."""
        tags = dict(self.kafka_tags)
        if self.remote_log_segments:
            tags[LOCATION_TAG] = self.remote_log_segments
        if self.located_end_offset != _NOT_LOCATED:
            tags[_LOCATED_END_TAG] = _INT64.pack(self.located_end_offset)
        numbers = _RESPONSE_PARTITION.pack(
            self.partition_index, self.error_code,
            self.high_watermark, self.last_stable_offset, self.log_start_offset,
        )  # fmt: skip
        return numbers, _NO_RECORDS, *flexible.tagged_field_pieces(tags)

    @classmethod
    def decode(cls, reader: flexible.Reader) -> LocatedPartition:
        partition, error_code, high_watermark, last_stable_offset, log_start_offset = reader.unpack(_RESPONSE_PARTITION)
        reader.structs(_TRANSACTION)
        reader.unpack(_INT32)  # preferred read replica
        reader.compact_bytes()  # records
        tags = reader.tags()
        return cls(
            partition,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            kafka_tags={tag: value for tag, value in tags.items() if tag in _KAFKA_TAGS},
            remote_log_segments=tags.get(LOCATION_TAG, b""),
            located_end_offset=_number(_INT64, tags[_LOCATED_END_TAG]) if _LOCATED_END_TAG in tags else _NOT_LOCATED,
        )


@dataclass(frozen=True, slots=True)
class LocationFetchResponse:
    """Fetch response with segment locations and without records."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: Sequence[FetchTopic[LocatedPartition]]

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded body in several pieces, so that its segments (many MB) are not copied."""
        yield _RESPONSE.pack(self.throttle_time_ms, self.error_code, self.session_id)
        yield from _encoded_topics(self.responses)
        yield flexible.NO_TAGS

    @classmethod
    def decode_body(cls, body: flexible.Reader) -> LocationFetchResponse:
        """Decode the body of a Fetch response of version 13 or newer, and skip its records.

        Raises:
            ValueError: the bytes are not the body of a Fetch response.
        """
        throttle_time_ms, error_code, session_id = body.unpack(_RESPONSE)
        topics = _decode_topics(body, LocatedPartition.decode)
        body.tags()
        return cls(throttle_time_ms, error_code, session_id, topics)


def _encoded_topics(topics: Sequence[FetchTopic[Any]]) -> Iterator[bytes]:
    """Yield the encoded topics as a compact array, in several pieces of bytes."""
    yield flexible.array_length(topics)
    for topic in topics:
        yield flexible.uuid_bytes(topic.topic_id)
        yield flexible.array_length(topic.partitions)
        for partition in topic.partitions:
            yield from partition.pieces()
        yield flexible.NO_TAGS


def _decode_topics(reader: flexible.Reader, partition: Callable[[flexible.Reader], P]) -> list[FetchTopic[P]]:
    def topic(reader: flexible.Reader) -> FetchTopic[P]:
        decoded = FetchTopic(reader.uuid(), reader.array(_INT32.size, partition))
        reader.tags()
        return decoded

    return reader.array(_MIN_TOPIC_BYTES, topic)


def _number(layout: Struct, value: bytes) -> Any:
    """Return the number in a tagged field's value. Raises ValueError if the value's size is wrong."""
    if len(value) != layout.size:
        raise ValueError(f"a tagged field has {len(value)} bytes, not {layout.size}")
    return layout.unpack(value)[0]
