"""State of one topic, as the records in one partition of the metadata topic describe it.

If a record cannot be read, the segments of the partition that it names count as unknown. If the record names no
partition, the segments of all topics whose ids it holds count as unknown. If it holds no id, it is skipped, because no
topic can be identified. A skipped record loses no data: a segment that is not known to be finished is read from the
brokers. A segment whose deletion was skipped is also read from the brokers, because it is missing in the storage.
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
"""Offset of readable records in a summary; nothing depends on it, because only errors name offsets."""


@dataclass(slots=True)
class TopicState:
    """State of one topic: the `table` of its segments, and the records that could not be read.

    The state includes all records of the metadata partition below the offset `position`.
    """

    position: int
    table: SegmentTable = field(default_factory=SegmentTable)
    _unreadable: dict[TopicIdPartition | None, tuple[int, bytes, TieredStreamError]] = field(default_factory=dict)
    """Offset, value and error of the first unreadable record, by partition (None: records that name no partition)."""

    def fault_of(self, partition: TopicIdPartition) -> TieredStreamError | None:
        """Return the error because of which the partition's segments are unknown; None: the segments are known."""
        unreadable = self._unreadable.get(partition) or self._unreadable.get(None)
        return unreadable[2] if unreadable else None

    def summary(self) -> Iterator[OffsetValue]:
        """Yield (offset, value) of as few records as possible that together result in this state."""
        yield from ((_SUMMARY_OFFSET, encode_remote_log_metadata(metadata)) for metadata in self.table.summary())
        yield from ((offset, value) for offset, value, _ in self._unreadable.values())

    def add_unreadable(
        self, partition: TopicIdPartition | None, offset: int, value: bytes, error: TieredStreamError
    ) -> None:
        """Add a record that cannot be read because of `error`; only the first such record of each partition is kept.

        `partition` is the partition that the record names; None: the record names no partition.
        """
        self._unreadable.setdefault(partition, (offset, value, error))


def apply_record(topics: Mapping[bytes, TopicState], log_partition: TopicPartition, offset: int, value: bytes) -> None:
    """Apply one record to the state of the topic that it names, unless the state already includes the record's offset.

    A record that cannot be decoded is added as unreadable to the states of the topics that it may concern.

    Args:
        topics: the topics' states, by the bytes of the topic ids; changed in place.
        log_partition: partition of the metadata topic that has the record.
    """
    named = [topic_id for topic_id in _named(topics, value) if offset >= topics[topic_id].position]
    if not named:
        return
    try:
        metadata = decode_remote_log_metadata(value)
    except (CorruptDataError, UnsupportedDataError) as error:
        partition, fault = partition_of(value), type(error)(f"{log_partition} at offset {offset}: {error}")
        for topic_id in named:
            if partition is None or partition.topic_id.bytes == topic_id:
                topics[topic_id].add_unreadable(partition, offset, value, fault)
    else:
        if metadata is not None and metadata.partition.topic_id.bytes in named:
            topics[metadata.partition.topic_id.bytes].table.apply(metadata)


def _named(topics: Mapping[bytes, TopicState], value: bytes) -> list[bytes]:
    """Return the ids of `topics` that a record may concern; the result may be empty.

    A readable record concerns the topic whose id it names. A malformed record may concern every topic whose id's bytes
    are in it.
    """
    topic_id = topic_id_of(value)
    if topic_id is None:
        return [topic_id for topic_id in topics if topic_id in value]
    return [topic_id] if topic_id in topics else []


def restored_topic(
    values: Iterator[OffsetValue], topic_id: bytes, log_partition: TopicPartition, position: int
) -> TopicState:
    """Return the state of the topic `topic_id` that results from the records of a snapshot.

    Args:
        values: offset and value of each record of the snapshot (`TopicState.summary`).
        log_partition: partition of the metadata topic that had the records.
        position: offset in `log_partition` up to which (exclusive) the snapshot includes all records.

    Raises:
        CorruptDataError: `values` raises it.
    """
    topics = {topic_id: TopicState(0)}
    for offset, value in values:
        apply_record(topics, log_partition, offset, value)
    topics[topic_id].position = position
    return topics[topic_id]
