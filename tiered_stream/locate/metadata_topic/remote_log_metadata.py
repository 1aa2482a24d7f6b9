"""The records of KIP-405's internal topic `__remote_log_metadata`, decoded, and the partition in which each belongs.

A record has no key. Its value (Kafka: `RemoteLogMetadataSerde`, `AbstractApiMessageSerde`):

    frame version   unsigned varint   1
    api key         unsigned varint   0 segment, 1 segment update, 2 partition delete, 3 segment snapshot
    version         unsigned varint   of the message
    message         flexible message  as declared in `messages/*.json`

Api key 3 belongs to the brokers' own snapshot files and names no partition: it says nothing here and is passed over.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any
from uuid import UUID

from kafka.partitioner.default import murmur2
from kafka.protocol.api_data import ApiData
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.locate.metadata_topic import messages
from tiered_stream.model import LeaderEpoch, RemoteLogSegment, TopicPartition

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"

_FRAME_VERSION = 1
_SNAPSHOT_API_KEY = 3
_QUICKLY_UP_TO = 64 << 10
"""Bytes of a record that kafka-python's generated code decodes: ten times as fast as the code that looks at each field,
but a number may have any length there, and takes the square of it in time.
"""


class RemoteLogSegmentMetadataRecord(ApiData, load_json=messages.__name__):  # type: ignore[call-arg, misc]
    """A broker began to copy a segment."""


class RemoteLogSegmentMetadataUpdateRecord(ApiData, load_json=messages.__name__):  # type: ignore[call-arg, misc]
    """A segment's state changed."""


class RemotePartitionDeleteMetadataRecord(ApiData, load_json=messages.__name__):  # type: ignore[call-arg, misc]
    """A partition is deleted, with all its segments."""


_MESSAGES: dict[int, Any] = {
    0: RemoteLogSegmentMetadataRecord,
    1: RemoteLogSegmentMetadataUpdateRecord,
    2: RemotePartitionDeleteMetadataRecord,
}


class RemoteLogSegmentState(IntEnum):
    """Where a segment's copy stands (Kafka: `RemoteLogSegmentState`); readable in COPY_SEGMENT_FINISHED only."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition of one incarnation of a topic (Kafka: `TopicIdPartition`)."""

    topic_id: UUID
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """A segment appeared, in `state`."""

    partition: TopicIdPartition
    segment: RemoteLogSegment
    state: RemoteLogSegmentState


@dataclass(frozen=True, slots=True)
class SegmentMetadataUpdate:
    """The segment `segment_id` changed to `state`."""

    partition: TopicIdPartition
    segment_id: UUID
    state: RemoteLogSegmentState
    custom_metadata: bytes | None


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """The partition's segments are being deleted, or are deleted."""

    partition: TopicIdPartition


RemoteLogMetadata = SegmentMetadata | SegmentMetadataUpdate | PartitionDelete


def metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    """Which of the metadata topic's `partitions` tells of `partition` (Kafka: `RemoteLogMetadataTopicPartitioner`).

    Murmur2 over the four big-endian bytes of Java's `Objects.hash(least, most significant bits of the id, partition)`.
    """
    most, least = divmod(partition.topic_id.int, 1 << 64)
    hashed = 1
    for field_hash in (_long_hash(least), _long_hash(most), partition.topic_partition.partition):
        hashed = (31 * hashed + field_hash) & 0xFFFFFFFF
    return int(murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % partitions


def decode_remote_log_metadata(value: bytes | None) -> RemoteLogMetadata | None:
    """What a record says; None: nothing (a tombstone, or a snapshot record).

    Raises:
        CorruptDataError: the value does not have its format, or contradicts itself.
        UnsupportedDataError: a frame, record type or version that is not known.
    """
    if value is None:
        return None
    data = io.BytesIO(value)
    try:
        frame, api_key, version = (UnsignedVarInt32.decode(data) for _ in range(3))
        if api_key == _SNAPSHOT_API_KEY:
            return None
        message = _decode_message(frame, api_key, version, data)
    except (struct.error, ValueError, AssertionError, IndexError, TypeError) as error:
        raise CorruptDataError(f"it breaks off or has a malformed field ({error})") from error
    if data.tell() != len(value):
        raise CorruptDataError(f"{len(value) - data.tell()} bytes follow the message")
    return _metadata(message)


def _decode_message(frame: int, api_key: int, version: int, data: io.BytesIO) -> Any:
    message = _MESSAGES.get(api_key)
    if frame != _FRAME_VERSION or message is None or not 0 <= version <= message.max_version:
        raise UnsupportedDataError(f"frame version {frame}, record type {api_key}, version {version} is not known")
    if len(data.getbuffer()) > _QUICKLY_UP_TO:
        return message.decode(data, version=version, header=False)
    decode = message._struct.compiled_decode_from(version, compact=True, tagged=True, data_class=message)
    found, end = decode(data.getbuffer(), data.tell())
    data.seek(end)
    return found


def _metadata(message: Any) -> RemoteLogMetadata:
    if isinstance(message, RemotePartitionDeleteMetadataRecord):
        return PartitionDelete(_topic_id_partition(message.topic_id_partition))
    partition = _topic_id_partition(message.remote_log_segment_id.topic_id_partition)
    segment_id = message.remote_log_segment_id.id
    if segment_id is None:
        raise CorruptDataError("it names no segment")
    try:
        state = RemoteLogSegmentState(message.remote_log_segment_state)
    except ValueError as error:
        raise CorruptDataError(f"segment state {message.remote_log_segment_state} is none of 0 to 3") from error
    if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
        return SegmentMetadataUpdate(partition, segment_id, state, message.custom_metadata)
    return SegmentMetadata(partition, _segment(partition, segment_id, message), state)


def _topic_id_partition(entry: Any) -> TopicIdPartition:
    if not entry.name or entry.id is None or entry.partition < 0:
        raise CorruptDataError(f"topic {entry.name!r}, id {entry.id}, partition {entry.partition} is no partition")
    return TopicIdPartition(entry.id, TopicPartition(entry.name, entry.partition))


def _segment(partition: TopicIdPartition, segment_id: UUID, message: Any) -> RemoteLogSegment:
    if not 0 <= message.start_offset <= message.end_offset or message.segment_size_in_bytes < 0:
        raise CorruptDataError(
            f"segment {segment_id}: offsets {message.start_offset} to {message.end_offset}, "
            f"{message.segment_size_in_bytes} bytes"
        )
    return RemoteLogSegment(
        topic_partition=partition.topic_partition,
        topic_id=partition.topic_id,
        segment_id=segment_id,
        base_offset=message.start_offset,
        end_offset=message.end_offset,
        size=message.segment_size_in_bytes,
        max_timestamp=message.max_timestamp_ms,
        leader_epochs=_leader_epochs(message.segment_leader_epochs or ()),
        transaction_index_empty=bool(message.txn_index_empty),
        custom_metadata=message.custom_metadata,
    )


def _leader_epochs(entries: Any) -> tuple[LeaderEpoch, ...]:
    epochs = tuple(sorted((LeaderEpoch(entry.leader_epoch, entry.offset) for entry in entries), key=lambda e: e.epoch))
    for before, after in pairwise(epochs):
        if before.epoch == after.epoch or before.start_offset > after.start_offset:
            raise CorruptDataError(f"leader epochs {before} and {after} contradict each other")
    if not epochs or epochs[0].epoch < 0 or epochs[0].start_offset < 0:
        raise CorruptDataError("leader epochs are missing or negative")
    return epochs


def _long_hash(bits: int) -> int:
    """Java's `Long.hashCode`, as unsigned."""
    return (bits ^ (bits >> 32)) & 0xFFFFFFFF
