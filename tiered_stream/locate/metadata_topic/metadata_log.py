"""`__remote_log_metadata`, read partition by partition: all of it first, later only what is new."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import FetchedRecords, fetch_records
from tiered_stream.errors import BrokerUnavailableError, CorruptDataError, OffsetOutOfRangeError, UnsupportedDataError
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    decode_remote_log_metadata,
    metadata_partition,
)
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.model import TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.records.values import read_values

_FETCH_BYTES = 8 << 20
_FETCH_WAIT_MS = 500
_EMPTY_ANSWERS = 5  # in a row, below the high watermark, before it is given up

# As the internal topic's own records are not transactional; the high watermark is their end.
_ISOLATION = IsolationLevel.READ_UNCOMMITTED


def check_readable(client: BrokerClient) -> None:
    """Whether the metadata topic is there and the user may READ it: a Fetch at a partition's end, which brings nothing.

    Raises:
        UnknownTopicError, BrokerAuthorizationError: it is not there, or the user may not; names what to grant.
        BrokerUnavailableError: no broker answers.
    """
    partitions = client.metadata([REMOTE_LOG_METADATA_TOPIC])[REMOTE_LOG_METADATA_TOPIC].partitions
    _, number = min((each.leader_id < 0, number) for number, each in partitions.items())
    log = TopicPartition(REMOTE_LOG_METADATA_TOPIC, number)
    end = BrokerOffsetReader(client, _ISOLATION).latest([log])[log]
    with suppress(OffsetOutOfRangeError):  # said to who may read; another leader's log may end earlier
        fetch_records(client, log, end, isolation=_ISOLATION, max_bytes=1, max_wait_ms=0)


class MetadataLog:
    """Keeps a `SegmentTable` of the partitions asked for, and how far each metadata partition has been read."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._offsets = BrokerOffsetReader(client, _ISOLATION)
        self._incarnation: tuple[UUID, int] | None = None
        self._positions: dict[int, int] = {}
        self.table = SegmentTable()

    def catch_up(self, partitions: Collection[TopicIdPartition], topic_id: UUID, partition_count: int) -> None:
        """Bring the table of `partitions` up to the high watermark of now.

        Args:
            topic_id: of the metadata topic, as it is now; `partition_count` likewise.

        Raises:
            BrokerError: the metadata topic cannot be read.
            CorruptDataError, UnsupportedDataError: a record of `partitions`' topics cannot be read; the message names
                the metadata partition and the offset.
        """
        if self._incarnation != (topic_id, partition_count):
            self._positions.clear()
            self._incarnation = (topic_id, partition_count)
        by_metadata_partition: dict[int, set[TopicIdPartition]] = {}
        for partition in {*partitions, *self.table.followed()}:
            by_metadata_partition.setdefault(metadata_partition(partition, partition_count), set()).add(partition)
        wanted = {metadata_partition(partition, partition_count) for partition in partitions}
        logs = [TopicPartition(REMOTE_LOG_METADATA_TOPIC, each) for each in sorted(wanted)]
        starts, ends = self._offsets.earliest(logs), self._offsets.latest(logs)
        for log in logs:
            self._catch_up_one(log, by_metadata_partition[log.partition], starts[log], ends[log])

    def _catch_up_one(self, log: TopicPartition, told: Iterable[TopicIdPartition], start: int, end: int) -> None:
        """Read one metadata partition, which tells of `told`, from where we are, or anew where that says nothing."""
        position = self._positions.get(log.partition)
        new = not all(self.table.follows(partition) for partition in told)
        if position is None or new or not start <= position <= end:
            self.table.follow(told)
            position = start
            self._positions[log.partition] = position
        wanted = {partition.topic_id.bytes for partition in told}
        while position < end:
            position = self._apply(log, self._fetch(log, position), end, wanted)
            self._positions[log.partition] = position

    def _fetch(self, log: TopicPartition, position: int) -> FetchedRecords:
        for _ in range(_EMPTY_ANSWERS):
            fetched = fetch_records(
                self._client, log, position, isolation=_ISOLATION, max_bytes=_FETCH_BYTES, max_wait_ms=_FETCH_WAIT_MS
            )
            if fetched.records:
                return fetched
        raise BrokerUnavailableError(f"{log}: the broker gives no records from offset {position} on, below their end")

    def _apply(self, log: TopicPartition, fetched: FetchedRecords, end: int, topic_ids: set[bytes]) -> int:
        """Take in what was fetched; the offset to go on from."""
        try:
            values, next_offset = read_values(fetched.records)
        except (CorruptDataError, UnsupportedDataError) as error:
            raise type(error)(f"{log}: {error}") from error
        for offset, value in values:
            # A batch may begin before the offset that was asked for.
            if value is None or not fetched.fetch_offset <= offset < end:
                continue
            # A record names its topic's id, so that most of the others' need no decoding.
            if not any(topic_id in value for topic_id in topic_ids):
                continue
            try:
                metadata = decode_remote_log_metadata(value)
            except (CorruptDataError, UnsupportedDataError) as error:
                raise type(error)(f"{log} at offset {offset}: {error}") from error
            if metadata is not None:
                self.table.apply(metadata)
        if next_offset <= fetched.fetch_offset:
            raise CorruptDataError(f"{log}: no whole batch came from offset {fetched.fetch_offset} on")
        return next_offset
