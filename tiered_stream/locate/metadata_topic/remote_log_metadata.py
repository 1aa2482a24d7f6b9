"""Decoder of the records of KIP-405's internal topic `__remote_log_metadata`, and its partitioner.

A record has no key, or a key that repeats fields of the value (KIP-1266, which compacts the topic), so keys are
ignored. A record without a value (a tombstone) is ignored too, because an earlier record has already recorded the
deletion. A value has this form (Kafka: `RemoteLogMetadataSerde`, `AbstractApiMessageSerde`):

    frame version   unsigned varint   1
    api key         unsigned varint   0 segment, 1 segment update, 2 partition delete, 3 segment snapshot
    version         unsigned varint   of the message
    message         flexible message  Kafka: storage/src/main/resources/message/Remote*Record.json

A segment is named by its partition (topic compact string, topic id uuid, partition int32) and its own id (uuid). Both
are followed by tagged fields. Then come, without the tagged fields that are not used here:

    segment           start offset int64, end offset int64, broker int32, largest timestamp int64, event time int64,
                      array of (leader epoch int32, start offset int64), size int32, custom metadata nullable bytes,
                      state int8, tagged field 0: whether the transaction index is empty
    segment update    broker int32, event time int64, custom metadata nullable bytes, state int8; in version 1 tagged
                      field 0: broker leader epoch int32, tagged field 1: the segment's end offset int64
    partition delete  broker int32, event time int64, state int8; names no segment

Api key 3 belongs to the brokers' own snapshot files and names no partition, so it is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise, starmap
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from kafka.partitioner.default import murmur2

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.model import LeaderEpoch, RemoteLogSegment, TopicPartition, is_topic_name
from tiered_stream.records import flexible_versions as flexible

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"

_FRAME_VERSION = 1
_LAST_VERSION = 1
_SNAPSHOT_API_KEY = 3

NO_OFFSET = (1 << 63) - 1  # the offset after this one does not exist

_INT32 = Struct(">i")
_OFFSETS_AND_TIMES = Struct(">qqiqq")
_LEADER_EPOCH = Struct(">iqx")
_AFTER_NAME = 16 + 4 + 1
"""Size in bytes of a topic's id, a partition number, and an empty set of tagged fields."""
_NAME_AT = 4
"""Position of the topic's name if frame version, api key, version and the name's length take one byte each."""
_ONE_BYTE = 0x7F
"""Largest unsigned varint of one byte, and largest first byte of a signed number that is not negative."""
_UPDATE = Struct(">iq")
_STATE = Struct(">b")
_DELETE = Struct(">iqb")
_TRANSACTION_INDEX_EMPTY_TAG = 0
_END_OFFSET_TAG, _END_OFFSET = 1, Struct(">q")
_NO_END_OFFSET = _END_OFFSET.pack(-1)


class RemoteLogSegmentState(IntEnum):
    """State of a segment's copy (Kafka: `RemoteLogSegmentState`); only COPY_SEGMENT_FINISHED segments are read."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_STATES = tuple(RemoteLogSegmentState)


class TopicIdPartition(NamedTuple):
    """Partition with its topic's id, which changes if the topic is recreated (Kafka: `TopicIdPartition`)."""

    topic_id: UUID
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """Record with a segment's metadata and the state of the segment's copy.

    If `is_update` is true, the record says that the state has changed to `state`. Then `segment` has only its ids, its
    custom metadata and its end offset. The end offset is -1 if the record does not contain it.
    """

    partition: TopicIdPartition
    segment: RemoteLogSegment
    state: RemoteLogSegmentState
    is_update: bool = False


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """Record which says that the segments of `partition` are being deleted, or are deleted."""

    partition: TopicIdPartition


RemoteLogMetadata = SegmentMetadata | PartitionDelete


def metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    """Return the number of the partition of `__remote_log_metadata` that has the records about `partition`.

    `partitions` is the number of partitions of `__remote_log_metadata`. The result is Murmur2 of the four big-endian
    bytes of Java's `Objects.hash(least, most significant bits of the id, partition)`, modulo `partitions` (Kafka:
    `RemoteLogMetadataTopicPartitioner`).
    """
    high_bits, low_bits = divmod(partition.topic_id.int, 1 << 64)
    hashed = 1
    for field_hash in (_long_hash(low_bits), _long_hash(high_bits), partition.topic_partition.partition):
        hashed = (31 * hashed + field_hash) & 0xFFFFFFFF
    return int(murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % partitions


def decode_remote_log_metadata(value: bytes | None) -> RemoteLogMetadata | None:
    """Decode the value of a record of `__remote_log_metadata`; return None for a tombstone or a snapshot record.

    Raises:
        CorruptDataError: the value is malformed, or contradicts itself.
        UnsupportedDataError: the frame version, record type or version is unknown.
    """
    if value is None:
        return None
    reader = flexible.Reader(value)
    try:
        frame, api_key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
        if api_key == _SNAPSHOT_API_KEY:
            return None
        decode = _RECORDS.get(api_key)
        if frame != _FRAME_VERSION or decode is None or version > _LAST_VERSION:
            raise UnsupportedDataError(f"frame version {frame}, record type {api_key}, version {version} is not known")
        metadata = decode(reader, version)
    except ValueError as error:
        raise CorruptDataError(f"it breaks off or has a malformed field ({error})") from error
    if reader.position != len(value):
        raise CorruptDataError(f"{len(value) - reader.position} bytes follow the message")
    return metadata


@lru_cache(1 << 16)
def encoded_partition(partition: TopicIdPartition) -> bytes:
    """Encode the fields of a metadata record that name a partition; `read_partition` decodes them."""
    name = flexible.compact_string(partition.topic_partition.topic) + partition.topic_id.bytes
    return name + _INT32.pack(partition.topic_partition.partition) + flexible.NO_TAGS


def topic_id_of(value: bytes) -> bytes | None:
    """Return the 16 bytes of the topic id in a record's value; None: the record must be decoded to find the topic id.

    The result is None for a snapshot record, and for a record whose beginning is malformed or has an unusual form: a
    number of several bytes, tagged fields, or a topic name that is not ASCII. This function is much faster than a
    decoder, and most records name topics that no query reads.
    """
    if len(value) <= _NAME_AT or max(value[:_NAME_AT]) > _ONE_BYTE or value[1] >= _SNAPSHOT_API_KEY:
        return None
    id_at = _NAME_AT + value[_NAME_AT - 1] - 1
    end = id_at + _AFTER_NAME
    if id_at <= _NAME_AT or len(value) < end or not value[_NAME_AT:id_at].isascii():
        return None
    topic_id, partition = value[id_at : id_at + 16], value[id_at + 16]
    return topic_id if any(topic_id) and partition <= _ONE_BYTE and not value[end - 1] else None


def partition_of(value: bytes) -> TopicIdPartition | None:
    """Return the partition that a malformed record's value names, or None if it names no valid partition."""
    reader = flexible.Reader(value)
    try:
        for _ in range(3):
            reader.uvarint()
        return _topic_id_partition(reader)
    except (ValueError, CorruptDataError):
        return None


def _segment_metadata(reader: flexible.Reader, _version: int) -> SegmentMetadata:
    partition = _topic_id_partition(reader)
    segment_id = _segment_id(reader)
    start_offset, end_offset, _, max_timestamp, _ = reader.unpack(_OFFSETS_AND_TIMES)
    epochs = _leader_epochs(starmap(LeaderEpoch, reader.structs(_LEADER_EPOCH)))
    (size,) = reader.unpack(_INT32)
    custom_metadata = reader.compact_bytes()
    state = _state(reader)
    tags = reader.tags()
    if not 0 <= start_offset <= end_offset < NO_OFFSET or size < 0:
        raise CorruptDataError(f"segment {segment_id}: offsets {start_offset} to {end_offset}, {size} bytes")
    segment = RemoteLogSegment(
        topic_partition=partition.topic_partition,
        topic_id=partition.topic_id,
        segment_id=segment_id,
        base_offset=start_offset,
        end_offset=end_offset,
        size=size,
        max_timestamp=max_timestamp,
        leader_epochs=epochs,
        transaction_index_empty=any(tags.get(_TRANSACTION_INDEX_EMPTY_TAG, b"")),
        custom_metadata=custom_metadata,
    )
    return SegmentMetadata(partition, segment, state)


def _segment_metadata_update(reader: flexible.Reader, version: int) -> SegmentMetadata:
    partition = _topic_id_partition(reader)
    segment_id = _segment_id(reader)
    reader.unpack(_UPDATE)
    custom_metadata = reader.compact_bytes()
    state = _state(reader)
    tags = reader.tags()
    tag = tags.get(_END_OFFSET_TAG, _NO_END_OFFSET) if version else _NO_END_OFFSET
    if len(tag) != _END_OFFSET.size:
        raise CorruptDataError(f"segment {segment_id}: an end offset of {len(tag)} bytes")
    (end_offset,) = _END_OFFSET.unpack(tag)
    if not -1 <= end_offset < NO_OFFSET:
        raise CorruptDataError(f"segment {segment_id}: end offset {end_offset}")
    segment = RemoteLogSegment(
        partition.topic_partition, partition.topic_id, segment_id, 0, end_offset, 0, custom_metadata=custom_metadata
    )
    return SegmentMetadata(partition, segment, state, is_update=True)


def _partition_delete(reader: flexible.Reader, _version: int) -> PartitionDelete:
    partition = _topic_id_partition(reader)
    reader.unpack(_DELETE)
    reader.tags()
    return PartitionDelete(partition)


_RECORDS: dict[int, Callable[[flexible.Reader, int], RemoteLogMetadata]] = {
    0: _segment_metadata,
    1: _segment_metadata_update,
    2: _partition_delete,
}


def _segment_id(reader: flexible.Reader) -> UUID:
    segment_id = reader.uuid()
    reader.tags()
    if segment_id is None:
        raise CorruptDataError("it names no segment")
    return segment_id


def _topic_id_partition(reader: flexible.Reader) -> TopicIdPartition:
    """Read a partition with its topic's id; most results come from a cache, by the bytes that name the partition."""
    data, start = reader.data, reader.position
    end = start + data[start] + _AFTER_NAME if start < len(data) else start
    if start < end <= len(data) and data[start] < 0x80 and not data[end - 1]:
        reader.position = end
        return _named_partition(data[start:end])
    return read_partition(reader)


@lru_cache(1 << 16)
def _named_partition(name: bytes) -> TopicIdPartition:
    return read_partition(flexible.Reader(name))


def read_partition(reader: flexible.Reader) -> TopicIdPartition:
    """Decode the fields of a metadata record that name a partition.

    Raises:
        ValueError, CorruptDataError: the fields are malformed.
    """
    name, topic_id = reader.nullable_string(), reader.uuid()
    (partition,) = reader.unpack(_INT32)
    reader.tags()
    if not name or not is_topic_name(name) or topic_id is None or partition < 0:
        raise CorruptDataError(f"topic {name!r:.300}, id {topic_id}, partition {partition} is no partition")
    return TopicIdPartition(topic_id, TopicPartition(name, partition))


def _state(reader: flexible.Reader) -> RemoteLogSegmentState:
    state: int = reader.unpack(_STATE)[0]
    if not 0 <= state < len(_STATES):
        raise CorruptDataError(f"segment state {state} is none of 0 to 3")
    return _STATES[state]


def _leader_epochs(entries: Iterable[LeaderEpoch]) -> tuple[LeaderEpoch, ...]:
    """Return the entries sorted by epoch. Raises CorruptDataError if there are none, or they contradict each other."""
    epochs = tuple(entries)
    if len(epochs) > 1:
        epochs = tuple(sorted(epochs, key=lambda entry: entry.epoch))
        for before, after in pairwise(epochs):
            if before.epoch == after.epoch or before.start_offset > after.start_offset:
                raise CorruptDataError(f"leader epochs {before} and {after} contradict each other")
    if not epochs or epochs[0].epoch < 0 or epochs[0].start_offset < 0:
        raise CorruptDataError("leader epochs are missing or negative")
    return epochs


def _long_hash(bits: int) -> int:
    """Return Java's `Long.hashCode` of the bits, as an unsigned number."""
    return (bits ^ (bits >> 32)) & 0xFFFFFFFF
