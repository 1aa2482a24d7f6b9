"""Reader of `__remote_log_metadata`: it first reads a whole partition of the topic, and then only new records.

The state that results from the records is kept on disk in snapshots (`metadata_snapshots`). The next query continues
from a snapshot if the log still has the last record batch that the snapshot includes. If the log does not have the
batch, the topic was recreated or truncated, and the snapshot is not used.
"""

from __future__ import annotations

import importlib.util
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from tiered_stream import errors
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import FetchedRecords, FetchTerms, check_authorized_to_read, fetch_records
from tiered_stream.locate.metadata_topic.metadata_snapshots import (
    LastBatch,
    MetadataSnapshots,
    SnapshotKey,
    TopicSnapshot,
)
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    metadata_partition,
)
from tiered_stream.locate.metadata_topic.segment_table import (
    SegmentTable,
    TopicState,
    apply_record,
    apply_rows,
    restore_topic,
)
from tiered_stream.model import PartialAnswer, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.process.caches import SingleFlightCache
from tiered_stream.process.heap_and_gc import collection_paused
from tiered_stream.records.header import ATTRIBUTES_AT, CRC_AT, whole_batches
from tiered_stream.records.values import Value, read_values

if TYPE_CHECKING:
    from tiered_stream.records.value_scan import UsualRecords

log = logging.getLogger(__name__)

_FETCH_BYTES = 8 << 20
_FETCH_WAIT_MS = 500
_MAX_READERS = 4
"""Maximum number of metadata partitions that are read in parallel."""
_MIN_SCAN_RECORDS = 30_000
"""Minimum number of records for which the scan that numba compiles is used.

With fewer records, starting the compiled scan takes longer than reading the records in plain Python.
"""
_MIN_SNAPSHOT_RECORDS = 1_000
"""Minimum number of records that must be read after a metadata partition's last snapshot before the next is written."""
_MAX_EMPTY_RESPONSES = 5  # after as many consecutive empty responses below the high watermark, no record is left

# Records of the internal topic are not transactional, so its log ends at the high watermark.
_ISOLATION = IsolationLevel.READ_UNCOMMITTED


def check_readable(client: BrokerClient) -> None:
    """Check by a Fetch at the end of one partition that the user is authorized to READ `__remote_log_metadata`.

    Raises:
        UnknownTopicError: the topic does not exist.
        BrokerAuthorizationError: the user is not authorized to READ the topic; the message names what to grant.
        BrokerUnavailableError: no broker responds.
    """
    partitions = client.metadata([REMOTE_LOG_METADATA_TOPIC])[REMOTE_LOG_METADATA_TOPIC].partitions
    _, number = min((metadata.leader_id < 0, number) for number, metadata in partitions.items())
    check_authorized_to_read(client, TopicPartition(REMOTE_LOG_METADATA_TOPIC, number), _ISOLATION)


_LogKey = tuple[UUID, int, int]
"""Key of a partition of `__remote_log_metadata`: the topic's id, its number of partitions, the partition's number."""


@dataclass(frozen=True, slots=True)
class _LogPart:
    """Request to read, in one partition of `__remote_log_metadata`, the records about some topics.

    `key` identifies the partition, whose log begins at the offset `start`. Records are read up to the offset `end`
    (exclusive). `names` has the names of the topics, by topic id.
    """

    key: _LogKey
    names: Mapping[UUID, str]
    start: int
    end: int
    scans: bool
    """True if the scan that numba compiles reads the records; it is faster for many records, but slow to start."""

    @property
    def log_partition(self) -> TopicPartition:
        return TopicPartition(REMOTE_LOG_METADATA_TOPIC, self.key[2])


@dataclass(slots=True)
class _LogState:
    """States of topics that result from the records in one partition of `__remote_log_metadata`.

    `topics` has the states, by the 16 bytes of the topic ids. `table` has the segments of all these topics.
    """

    topics: dict[bytes, TopicState] = field(default_factory=dict)
    table: SegmentTable = field(default_factory=SegmentTable)
    unsaved_records: int = 0
    """Number of records that were read after the last snapshot was written."""

    def is_read(self, part: _LogPart, *, beyond: bool = True) -> bool:
        """Return whether all records of `part` were read.

        If `beyond` is false, the result is also false if records after the end of `part` were read.
        """
        topics = [self.topics.get(topic_id.bytes) for topic_id in part.names]
        return all(topic and (topic.position == part.end or (beyond and topic.position > part.end)) for topic in topics)


class MetadataLog:
    """Reader of the metadata topic `__remote_log_metadata`, which returns tables of segments with their states.

    Many threads may use it, but each metadata partition (partition of this topic) is read by one thread at a time.

    Args:
        patience_ms: maximum time in ms to wait for the leader of a metadata partition; None: `default.api.timeout.ms`.
        snapshots: snapshots from which reading starts, and which are written after reading. None: reading starts at the
            start of the log, and nothing is written.
    """

    def __init__(
        self, client: BrokerClient, patience_ms: int | None = None, snapshots: MetadataSnapshots | None = None
    ) -> None:
        self._client = client
        self._patience_ms = patience_ms
        self._snapshots = snapshots
        self._offsets = BrokerOffsetReader(client, _ISOLATION)
        self._logs: dict[_LogKey, _LogState] = {}
        self._reading: SingleFlightCache[_LogKey, _LogState] = SingleFlightCache(0)
        self._readers = ThreadPoolExecutor(_MAX_READERS, thread_name_prefix="metadata-topic")

    def tables(
        self, partitions: Collection[TopicIdPartition], metadata_topic: TopicMetadata
    ) -> PartialAnswer[TopicIdPartition, SegmentTable]:
        """Read `__remote_log_metadata` up to its high watermark, and return by partition the table with its segments.

        The records about a partition are in one metadata partition (partition of this topic). A partition has a fault
        if its metadata partition cannot be read, or if one of its records is malformed. The error of a record names the
        metadata partition and the offset.

        Args:
            metadata_topic: current metadata of `__remote_log_metadata`.
        """
        topic_id, partition_count = metadata_topic.topic_id, len(metadata_topic.partitions)
        for key in [key for key in list(self._logs) if key[:2] != (topic_id, partition_count)]:
            self._logs.pop(key, None)  # the metadata topic was deleted and created again
        recorded: dict[TopicPartition, set[TopicIdPartition]] = defaultdict(set)
        for partition in partitions:
            number = metadata_partition(partition, partition_count)
            recorded[TopicPartition(REMOTE_LOG_METADATA_TOPIC, number)].add(partition)
        starts = self._offsets.special_offsets(EARLIEST, recorded, self._patience_ms)
        ends = self._offsets.special_offsets(LATEST, starts.found, self._patience_ms)
        records = sum(end - starts.found[log_partition] for log_partition, end in ends.found.items())
        scans = records >= _MIN_SCAN_RECORDS and _can_scan()
        reading: dict[TopicPartition, Future[_LogState]] = {}
        for log_partition, end in ends.found.items():
            names = {partition.topic_id: partition.topic_partition.topic for partition in recorded[log_partition]}
            key = topic_id, partition_count, log_partition.partition
            reading[log_partition] = self._caught_up(_LogPart(key, names, starts.found[log_partition], end, scans))
        with collection_paused():
            wait(reading.values())
        answer: PartialAnswer[TopicIdPartition, SegmentTable] = PartialAnswer({}, {})
        faults: dict[TopicPartition, errors.TieredStreamError] = {**starts.faults, **ends.faults}
        for log_partition in sorted(recorded):
            try:
                if log_partition in faults:
                    raise faults[log_partition]
                topics = reading[log_partition].result().topics
            except errors.TieredStreamError as error:
                answer.faults.update(dict.fromkeys(recorded[log_partition], error))
                continue
            for partition in recorded[log_partition]:
                topic = topics[partition.topic_id.bytes]
                if (fault := topic.fault_of(partition)) is not None:
                    answer.faults[partition] = fault
                else:
                    answer.found[partition] = topic.table
        return answer

    def _caught_up(self, part: _LogPart) -> Future[_LogState]:
        """Return a future of the metadata partition's state; the future is done when all records of `part` are read."""
        state = self._logs.get(part.key)
        if state is None or not state.is_read(part, beyond=False):
            return self._readers.submit(self._catch_up, part)
        done: Future[_LogState] = Future()
        done.set_result(state)
        return done

    def _catch_up(self, part: _LogPart) -> _LogState:
        while True:
            state = self._reading.get(part.key, partial(self._read_new, part))
            if state.is_read(part):
                return state

    def _read_new(self, part: _LogPart) -> _LogState:
        """Read the records of `part` that were not read yet, and return the state of the metadata partition.

        Reading begins at the lowest `position` of the topics' states. If a position is not in the log, all topics are
        read from the start of the log.

        Raises:
            BrokerError: the records cannot be fetched.
            CorruptDataError: the log's batches are malformed.
        """
        state = self._logs.setdefault(part.key, _LogState())
        log_partition, end = part.log_partition, part.end
        new = {topic_id: name for topic_id, name in part.names.items() if topic_id.bytes not in state.topics}
        if new:
            state.topics |= self._restored(new, part, state.table)
        if max(topic.position for topic in state.topics.values()) > end:
            # Another thread that asked later has read further, or the log was truncated.
            end = self._offsets.latest([log_partition])[log_partition]
        if not all(part.start <= topic.position <= end for topic in state.topics.values()):
            names = {topic_id: topic.name for topic_id, topic in state.topics.items()}
            state = self._logs[part.key] = _LogState()
            state.topics |= {topic_id: TopicState(part.start, name, state.table) for topic_id, name in names.items()}
        while (position := min(topic.position for topic in state.topics.values())) < end:
            fetched = self._fetch(log_partition, position)
            next_offset = end
            if fetched is not None:
                next_offset = min(_apply(state, log_partition, fetched, end, scans=part.scans), end)
            for topic in state.topics.values():
                topic.position = max(topic.position, next_offset)
            state.unsaved_records += next_offset - position
        self._save(part, state, end)
        return state

    def _fetch(self, log_partition: TopicPartition, position: int) -> FetchedRecords | None:
        """Fetch records from the offset `position` on; None: compaction (KIP-1266) has left no record from there on.

        Raises:
            BrokerUnavailableError: five responses have no records, and the log ends at or before `position`, or the
                client is throttled.
        """
        fetched = None
        for _ in range(_MAX_EMPTY_RESPONSES):
            fetched = self._fetch_once(log_partition, position, _FETCH_BYTES)
            if fetched.records:
                return fetched
        if fetched and fetched.high_watermark > position and not fetched.throttled:
            return None
        raise errors.BrokerUnavailableError(
            f"{log_partition}: the broker gives no records from offset {position} on, below their end"
        )

    def _fetch_once(self, log_partition: TopicPartition, offset: int, max_bytes: int) -> FetchedRecords:
        terms = FetchTerms(_ISOLATION, max_bytes, _FETCH_WAIT_MS)
        return fetch_records(self._client, log_partition, offset, terms, self._patience_ms)

    def _restored(self, names: Mapping[UUID, str], part: _LogPart, table: SegmentTable) -> dict[bytes, TopicState]:
        """Return by topic id the states of the topics `names`, which were not read yet, from their snapshots.

        A snapshot is used only if the log still has the last record batch that the snapshot includes. A topic without a
        usable snapshot gets an empty state at the start of the log. `part` has the metadata partition and its bounds.
        The segments of all topics go into `table`.
        """
        key, log_partition = self._snapshot_key(part), part.log_partition
        topics = {topic_id.bytes: TopicState(part.start, name, table) for topic_id, name in names.items()}
        snapshots = self._snapshots.load(key, names) if self._snapshots and key and part.end else {}
        last_batches: dict[int, LastBatch | None] = {}
        for topic_id, snapshot in snapshots.items():
            position = snapshot.position
            if not part.start < position <= part.end:
                continue
            if position not in last_batches:
                last_batches[position] = self._last_batch(log_partition, position)
            if snapshot.last_batch == last_batches[position]:
                with suppress(errors.CorruptDataError):
                    restore_topic(snapshot.packed, topic_id.bytes, topics[topic_id.bytes], log_partition, position)
        return topics

    def _save(self, part: _LogPart, state: _LogState, end: int) -> None:
        """Write a snapshot of `state`, which has all records of the metadata partition below the offset `end`.

        Nothing is written if fewer than `_MIN_SNAPSHOT_RECORDS` records were read after the last snapshot.
        """
        key = self._snapshot_key(part)
        if self._snapshots is None or key is None or state.unsaved_records < _MIN_SNAPSHOT_RECORDS:
            return
        last_batch = self._last_batch(part.log_partition, end)
        if last_batch is not None:
            snapshots = {
                UUID(bytes=topic_id): TopicSnapshot(end, last_batch, topic.packed(topic_id))
                for topic_id, topic in state.topics.items()
            }
            self._snapshots.save(key, snapshots)
            state.unsaved_records = 0

    def _last_batch(self, log_partition: TopicPartition, position: int) -> LastBatch | None:
        """Return base offset and CRC of the batch with the offset `position` - 1; None: the batch cannot be fetched."""
        try:
            records = self._fetch_once(log_partition, position - 1, 1).records
            _, base_offset, _ = next(whole_batches(records))
        except (errors.TieredStreamError, StopIteration):
            return None
        return LastBatch(base_offset, int.from_bytes(records[CRC_AT:ATTRIBUTES_AT], "big"))

    def _snapshot_key(self, part: _LogPart) -> SnapshotKey | None:
        cluster_id = self._client.cluster_id
        return None if cluster_id is None else SnapshotKey(cluster_id, *part.key)


def _can_scan() -> bool:
    """Return whether numba is installed, which the compiled scan needs. Without numba, plain Python reads the records.

    The gateway that is packed into one file has no numba, because numba is larger than the rest of the file.
    """
    return importlib.util.find_spec("numba") is not None


def _apply(state: _LogState, log_partition: TopicPartition, fetched: FetchedRecords, end: int, *, scans: bool) -> int:
    """Apply the fetched records below `end` to `state`, and return the offset from which to fetch the next records.

    `log_partition` is the metadata partition, for errors. If `scans` is true, the compiled scan reads the records.

    Raises:
        CorruptDataError: the response has no whole record batch, or a malformed batch.
    """
    next_offset = 0
    with errors.naming(log_partition):
        for batch_end, values in _values(fetched.records, state.topics, scans=scans):
            next_offset = batch_end
            for read in values:
                # A batch may begin before the requested offset.
                if not isinstance(read, tuple):
                    apply_rows(state.topics, read, fetched.fetch_offset, end)
                    continue
                offset, value = read
                if value is not None and fetched.fetch_offset <= offset < end:
                    apply_record(state.topics, log_partition, offset, value)
    if next_offset <= fetched.fetch_offset:
        raise errors.CorruptDataError(f"{log_partition}: no whole batch came from offset {fetched.fetch_offset} on")
    return next_offset


def _values(
    data: bytes | memoryview, topics: Mapping[bytes, TopicState], *, scans: bool
) -> Iterator[tuple[int, Iterator[Value | UsualRecords]]]:
    """Yield pairs: the offset after one or several record batches, and an iterator of the values in these batches.

    If `scans` is true, the compiled scan reads `data`, and yields only values that may concern `topics`. Otherwise the
    values of all topics are yielded.
    """
    if not scans:
        return read_values(data)
    # Imported here, because numba takes half a second to import.
    from tiered_stream.records.value_scan import scan_values

    return scan_values(data, {topic_id: topic.name for topic_id, topic in topics.items()})
