"""State of one topic as one partition of the metadata topic records it.

If a record cannot be read, the partition that it names is unknown. If it names no partition, the topics whose ids it
holds are unknown. If it holds no id, it is skipped, because no topic can be identified. That loses no data: a segment
that is not known to be finished is read from the brokers, and so is a deleted segment if it is missing in the storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tiered_stream.errors import CorruptDataError, TieredStreamError, UnsupportedDataError
from tiered_stream.locate.metadata_topic.metadata_snapshots import OffsetValue
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    TopicIdPartition,
    decode_remote_log_metadata,
    encode_remote_log_metadata,
    partition_of,
    topic_id_of,
)
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.model import TopicPartition

_SUMMARY_OFFSET = 0
"""Placeholder for the offset of records that were read; it is never shown."""


@dataclass(slots=True)
class TopicState:
    """State of one topic; all records below the offset `position` are included."""

    position: int
    table: SegmentTable = field(default_factory=SegmentTable)
    _unreadable: dict[TopicIdPartition | None, tuple[int, bytes, TieredStreamError]] = field(default_factory=dict)
    """Offset, value and error of the first unreadable record, by partition (None: records that name no partition)."""

    def fault_of(self, partition: TopicIdPartition) -> TieredStreamError | None:
        """Return the error because of which the partition's segments are unknown, or None if they are known."""
        for whose in (partition, None):
            if whose in self._unreadable:
                return self._unreadable[whose][2]
        return None

    def summary(self) -> Iterator[OffsetValue]:
        """Yield offsets and values of the smallest set of records that results in the same state."""
        yield from ((_SUMMARY_OFFSET, encode_remote_log_metadata(metadata)) for metadata in self.table.summary())
        yield from ((offset, value) for offset, value, _ in self._unreadable.values())

    def refuse(self, whose: TopicIdPartition | None, offset: int, value: bytes, error: TieredStreamError) -> None:
        """Record that a record cannot be read; `whose` is the partition that it names, or None if it names none."""
        self._unreadable.setdefault(whose, (offset, value, error))


def apply_record(topics: Mapping[bytes, TopicState], where: TopicPartition, offset: int, value: bytes) -> None:
    """Apply one record to the topic that it names, unless the topic's state already includes the record's offset.

    `topics` holds the topics by the bytes of their ids.
    """
    named = [topic_id for topic_id in _named(topics, value) if offset >= topics[topic_id].position]
    if not named:
        return
    try:
        metadata = decode_remote_log_metadata(value)
    except (CorruptDataError, UnsupportedDataError) as error:
        whose, fault = partition_of(value), type(error)(f"{where} at offset {offset}: {error}")
        for topic_id in named:
            if whose is None or whose.topic_id.bytes == topic_id:
                topics[topic_id].refuse(whose, offset, value, fault)
    else:
        if metadata is not None and metadata.partition.topic_id.bytes in named:
            topics[metadata.partition.topic_id.bytes].table.apply(metadata)


def _named(topics: Mapping[bytes, TopicState], value: bytes) -> list[bytes]:
    """Return the topics that a record may concern: the one that it names, or if malformed, all whose ids it holds."""
    topic_id = topic_id_of(value)
    if topic_id is None:
        return [topic_id for topic_id in topics if topic_id in value]
    return [topic_id] if topic_id in topics else []


def restored_topic(values: Iterator[OffsetValue], topic_id: bytes, where: TopicPartition, position: int) -> TopicState:
    """Rebuild a topic's state from the records of its summary. Raises: CorruptDataError if `values` raises it."""
    topics = {topic_id: TopicState(0)}
    for offset, value in values:
        apply_record(topics, where, offset, value)
    topics[topic_id].position = position
    return topics[topic_id]
