"""What one partition of the metadata topic told of one topic.

A record that cannot be read costs the partition that it names. Where it does not even name one, it costs the topics
whose ids it holds; where it holds none, nobody can say whose it is, and it is passed over. Nothing is lost by that: a
segment that is not known to be finished is read from the brokers, and so is one that is not known to be deleted, when
the storage does not have it any more.
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

_KNOWN = 0
"""In place of the offset of records that were read; it is never shown."""


@dataclass(slots=True)
class ToldTopic:
    """`position`: up to which offset all is taken in."""

    position: int
    table: SegmentTable = field(default_factory=SegmentTable)
    _unreadable: dict[TopicIdPartition | None, tuple[int, bytes, TieredStreamError]] = field(default_factory=dict)
    """The first record that cannot be read of each partition, or of those that name none, and the error."""

    def fault_of(self, partition: TopicIdPartition) -> TieredStreamError | None:
        """Why what was told of the partition is not known."""
        for whose in (partition, None):
            if whose in self._unreadable:
                return self._unreadable[whose][2]
        return None

    def summary(self) -> Iterator[OffsetValue]:
        """Offsets and values of the fewest records that tell the same."""
        yield from ((_KNOWN, encode_remote_log_metadata(each)) for each in self.table.summary())
        yield from ((offset, value) for offset, value, _ in self._unreadable.values())

    def refuse(self, whose: TopicIdPartition | None, offset: int, value: bytes, error: TieredStreamError) -> None:
        """Take in that a record cannot be read, which tells of one partition, or nobody knows of which."""
        self._unreadable.setdefault(whose, (offset, value, error))


def take_in(topics: Mapping[bytes, ToldTopic], where: TopicPartition, offset: int, value: bytes) -> None:
    """Let the topic of which the record tells know, by its id's bytes, unless it was told before."""
    named = [each for each in _named(topics, value) if offset >= topics[each].position]
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


def _named(topics: Mapping[bytes, ToldTopic], value: bytes) -> list[bytes]:
    """The topics whom a record may concern: the one that it names, or all whose ids it holds where it is malformed."""
    topic_id = topic_id_of(value)
    if topic_id is None:
        return [each for each in topics if each in value]
    return [topic_id] if topic_id in topics else []


def told_again(values: Iterator[OffsetValue], topic_id: bytes, where: TopicPartition, position: int) -> ToldTopic:
    """A topic as a summary of it tells it. Raises CorruptDataError: as `values`."""
    topics = {topic_id: ToldTopic(0)}
    for offset, value in values:
        take_in(topics, where, offset, value)
    topics[topic_id].position = position
    return topics[topic_id]
