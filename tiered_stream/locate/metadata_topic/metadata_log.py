"""Reader of `__remote_log_metadata`: it reads each partition as a whole first, and then only new records.

The result is kept on disk (`metadata_snapshots`). The next query continues from it if the log still holds the last
batch that was read; otherwise the log is another one, and the snapshot is not used.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import FetchedRecords, fetch_records
from tiered_stream.errors import (
    BrokerUnavailableError,
    CorruptDataError,
    OffsetOutOfRangeError,
    TieredStreamError,
    naming,
)
from tiered_stream.locate.metadata_topic.metadata_snapshots import KeptTopic, LastBatch, MetadataSnapshots, Whose
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    metadata_partition,
)
from tiered_stream.locate.metadata_topic.segment_table import FinishedAlone, SegmentTable, TrackedSegment
from tiered_stream.locate.metadata_topic.told_topic import ToldTopic, take_in, told_again
from tiered_stream.model import PartialAnswer, RemoteLogSegment, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.process.heap_and_gc import collection_paused
from tiered_stream.process.single_flight import SingleFlightCache
from tiered_stream.records.header import ATTRIBUTES_AT, CRC_AT, whole_batches
from tiered_stream.records.values import Value, read_values

log = logging.getLogger(__name__)

_FETCH_BYTES = 8 << 20
_FETCH_WAIT_MS = 500
_READERS = 4
"""Number of metadata partitions that are read in parallel."""
_SCANNED_RECORDS = 60_000
"""Number of records from which starting the compiled scan costs less than reading them in plain Python."""
_KEPT_RECORDS = 1_000
"""Minimum number of new records of a metadata partition for which its snapshot is written."""
_EMPTY_ANSWERS = 5  # consecutive empty responses below the high watermark after which no records are left

# Records of the internal topic are not transactional, so its log ends at the high watermark.
_ISOLATION = IsolationLevel.READ_UNCOMMITTED


def check_readable(client: BrokerClient) -> None:
    """Check that the metadata topic exists and that the user may read it, by a Fetch of nothing at a partition's end.

    Raises:
        UnknownTopicError: the metadata topic does not exist.
        BrokerAuthorizationError: the user may not read it; the message names what to grant.
        BrokerUnavailableError: no broker responds.
    """
    partitions = client.metadata([REMOTE_LOG_METADATA_TOPIC])[REMOTE_LOG_METADATA_TOPIC].partitions
    _, number = min((each.leader_id < 0, number) for number, each in partitions.items())
    first = TopicPartition(REMOTE_LOG_METADATA_TOPIC, number)
    end = BrokerOffsetReader(client, _ISOLATION).latest([first])[first]
    with suppress(OffsetOutOfRangeError):  # proves that the user may read; another leader's log may end earlier
        fetch_records(client, first, end, isolation=_ISOLATION, max_bytes=1, max_wait_ms=0)


Segments = tuple[RemoteLogSegment, ...]

_LogKey = tuple[UUID, int, int]
"""Key of a metadata partition: the metadata topic's id, its number of partitions, and the partition's number."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Part of a metadata partition that must be read: the topics' ids, and the start and end of the partition's log."""

    where: TopicPartition
    topic_ids: frozenset[UUID]
    start: int
    end: int
    scans: bool
    """True if there are enough records to read that starting the compiled scan is worth it."""


@dataclass(slots=True)
class _ReadLog:
    """State of a metadata partition up to the records that were read: each topic's state, by the bytes of its id."""

    topics: dict[bytes, ToldTopic] = field(default_factory=dict)
    not_kept: int = 0
    """Number of records that were read after the last snapshot was written."""

    def is_read(self, wanted: _Wanted, *, beyond: bool = True) -> bool:
        """Return whether all records up to the wanted end are read; with `beyond`, later records may be read too."""
        told = [self.topics.get(topic_id.bytes) for topic_id in wanted.topic_ids]
        return all(each and (each.position == wanted.end or (beyond and each.position > wanted.end)) for each in told)


class MetadataLog:
    """The segments by the metadata topic's records; one thread at a time reads a metadata partition, and others wait.

    Args:
        patience_ms: maximum time to wait for a metadata partition that does not respond.
        snapshots: store of what was read.
    """

    def __init__(
        self, client: BrokerClient, patience_ms: int | None = None, snapshots: MetadataSnapshots | None = None
    ) -> None:
        self._client = client
        self._patience_ms = patience_ms
        self._snapshots = snapshots
        self._offsets = BrokerOffsetReader(client, _ISOLATION)
        self._logs: dict[_LogKey, _ReadLog] = {}
        self._reading: SingleFlightCache[_LogKey, _ReadLog] = SingleFlightCache(0)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="metadata-topic")

    def segments(
        self, partitions: Collection[TopicIdPartition], topic_id: UUID, partition_count: int
    ) -> PartialAnswer[TopicIdPartition, Segments]:
        """Return the readable segments of `partitions`, up to the current high watermark.

        A fault is the error of the metadata partition that records the partition, or of one unreadable record. The
        error of a record names the metadata partition and the offset.

        Args:
            topic_id: current id of the metadata topic.
            partition_count: current number of partitions of the metadata topic.

        Raises: the errors of `BrokerOffsetReader.each`.
        """
        told = self._tables(partitions, topic_id, partition_count)
        return PartialAnswer({each: table.segments(each) for each, table in told.found.items()}, told.faults)

    def alone(
        self, partitions: Collection[TopicIdPartition], topic_id: UUID, partition_count: int
    ) -> dict[TopicIdPartition, tuple[FinishedAlone, ...]]:
        """Return the finished copies of which only an update is known, as `segments` read them; sends no request."""
        found = {}
        for each in partitions:
            read = self._logs.get((topic_id, partition_count, metadata_partition(each, partition_count)))
            topic = read.topics.get(each.topic_id.bytes) if read else None
            if topic and (alone := topic.table.alone(each)):
                found[each] = alone
        return found

    def tracked(
        self, partitions: Collection[TopicIdPartition], topic_id: UUID, partition_count: int
    ) -> PartialAnswer[TopicIdPartition, tuple[TrackedSegment, ...]]:
        """Return the segments of `partitions` with their states, also those that are being copied or deleted.

        Raises: the errors of `BrokerOffsetReader.each`.
        """
        told = self._tables(partitions, topic_id, partition_count)
        return PartialAnswer({each: table.tracked(each) for each, table in told.found.items()}, told.faults)

    def _tables(
        self, partitions: Collection[TopicIdPartition], topic_id: UUID, partition_count: int
    ) -> PartialAnswer[TopicIdPartition, SegmentTable]:
        """Return the segment tables of the partitions, up to the current high watermark."""
        for key in [key for key in list(self._logs) if key[:2] != (topic_id, partition_count)]:
            self._logs.pop(key, None)  # the metadata topic was deleted and created again
        told: dict[TopicPartition, set[TopicIdPartition]] = defaultdict(set)
        for each in partitions:
            told[TopicPartition(REMOTE_LOG_METADATA_TOPIC, metadata_partition(each, partition_count))].add(each)
        starts = self._offsets.each(EARLIEST, told, self._patience_ms)
        ends = self._offsets.each(LATEST, starts.found, self._patience_ms)
        scans = sum(ends.found[each] - starts.found[each] for each in ends.found) >= _SCANNED_RECORDS
        reading: dict[TopicPartition, Future[_ReadLog]] = {}
        for where, end in ends.found.items():
            topic_ids = frozenset(each.topic_id for each in told[where])
            wanted = _Wanted(where, topic_ids, starts.found[where], end, scans)
            reading[where] = self._caught_up((topic_id, partition_count, where.partition), wanted)
        with collection_paused():
            wait(reading.values())
        answer: PartialAnswer[TopicIdPartition, SegmentTable] = PartialAnswer({}, {})
        faults: dict[TopicPartition, TieredStreamError] = {**starts.faults, **ends.faults}
        for where in sorted(told):
            try:
                if where in faults:
                    raise faults[where]
                topics = reading[where].result().topics
            except TieredStreamError as error:
                answer.faults.update(dict.fromkeys(told[where], error))
                continue
            for each in told[where]:
                topic = topics[each.topic_id.bytes]
                if (fault := topic.fault_of(each)) is not None:
                    answer.faults[each] = fault
                else:
                    answer.found[each] = topic.table
        return answer

    def _caught_up(self, key: _LogKey, wanted: _Wanted) -> Future[_ReadLog]:
        """Return the metadata partition, as a future, once it is read up to the wanted end."""
        read = self._logs.get(key)
        if read is None or not read.is_read(wanted, beyond=False):
            return self._readers.submit(self._catch_up, key, wanted)
        done: Future[_ReadLog] = Future()
        done.set_result(read)
        return done

    def _catch_up(self, key: _LogKey, wanted: _Wanted) -> _ReadLog:
        while True:
            read = self._reading.get(key, partial(self._read_on, key, wanted))
            if read.is_read(wanted):
                return read

    def _read_on(self, key: _LogKey, wanted: _Wanted) -> _ReadLog:
        """Read on from the current position, or from the log's start if the position is not in the log."""
        read = self._logs.setdefault(key, _ReadLog())
        where, end = wanted.where, wanted.end
        new = {topic_id for topic_id in wanted.topic_ids if topic_id.bytes not in read.topics}
        read.topics.update(self._known_before(key, new, wanted) if new else {})
        if max(topic.position for topic in read.topics.values()) > end:
            # Another thread that asked later has read further, or the log was truncated.
            end = self._offsets.latest([where])[where]
        if not all(wanted.start <= topic.position <= end for topic in read.topics.values()):
            read = self._logs[key] = _ReadLog({topic_id: ToldTopic(wanted.start) for topic_id in read.topics})
        while (position := min(topic.position for topic in read.topics.values())) < end:
            fetched = self._fetch(where, position)
            following = end if fetched is None else min(_apply(read, where, fetched, end, scans=wanted.scans), end)
            for topic in read.topics.values():
                topic.position = max(topic.position, following)
            read.not_kept += following - position
        self._keep(key, read, where, end)
        return read

    def _fetch(self, where: TopicPartition, position: int) -> FetchedRecords | None:
        """Fetch from `position` on; return None if compaction has left no records from there on (KIP-1266)."""
        fetched = None
        for _ in range(_EMPTY_ANSWERS):
            fetched = fetch_records(
                self._client, where, position, isolation=_ISOLATION,
                max_bytes=_FETCH_BYTES, max_wait_ms=_FETCH_WAIT_MS, patience_ms=self._patience_ms,
            )  # fmt: skip
            if fetched.records:
                return fetched
        if fetched and fetched.high_watermark > position and not fetched.throttled:
            return None
        raise BrokerUnavailableError(f"{where}: the broker gives no records from offset {position} on, below their end")

    def _known_before(self, key: _LogKey, new: Collection[UUID], wanted: _Wanted) -> dict[bytes, ToldTopic]:
        """Load the topics that are new here from their snapshots, if reading can continue from these."""
        where, whose = wanted.where, self._whose(key)
        told = {topic_id.bytes: ToldTopic(wanted.start) for topic_id in new}
        kept = self._snapshots.load(whose, new) if self._snapshots and whose and wanted.end else {}
        last_batches: dict[int, LastBatch | None] = {}
        for topic_id, topic in kept.items():
            if not wanted.start < topic.position <= wanted.end:
                continue
            if topic.position not in last_batches:
                last_batches[topic.position] = self._last_batch(where, topic.position)
            if topic.last_batch == last_batches[topic.position]:
                with suppress(CorruptDataError):
                    told[topic_id.bytes] = told_again(topic.values(), topic_id.bytes, where, topic.position)
        return told

    def _keep(self, key: _LogKey, read: _ReadLog, where: TopicPartition, end: int) -> None:
        """Write a snapshot if it saves the next query much reading."""
        whose = self._whose(key)
        if self._snapshots is None or whose is None or read.not_kept < _KEPT_RECORDS:
            return
        last_batch = self._last_batch(where, end)
        if last_batch is not None:
            told = {
                UUID(bytes=each): KeptTopic.of(end, last_batch, read.topics[each].summary()) for each in read.topics
            }
            self._snapshots.save(whose, told)
            read.not_kept = 0

    def _last_batch(self, where: TopicPartition, position: int) -> LastBatch | None:
        """Return the batch that holds the offset before `position`, or None if the log does not have it."""
        try:
            fetched = fetch_records(
                self._client, where, position - 1, isolation=_ISOLATION,
                max_bytes=1, max_wait_ms=_FETCH_WAIT_MS, patience_ms=self._patience_ms,
            )  # fmt: skip
            _, base_offset, _ = next(whole_batches(fetched.records))
        except (TieredStreamError, StopIteration):
            return None
        return LastBatch(base_offset, int.from_bytes(fetched.records[CRC_AT:ATTRIBUTES_AT], "big"))

    def _whose(self, key: _LogKey) -> Whose | None:
        cluster_id = self._client.cluster_id
        return None if cluster_id is None else Whose(cluster_id, *key)


def _apply(read: _ReadLog, where: TopicPartition, fetched: FetchedRecords, end: int, *, scans: bool) -> int:
    """Apply the fetched records, and return the offset to continue from."""
    next_offset = 0
    with naming(where):
        for following, values in _values(fetched.records, read.topics, scans=scans):
            next_offset = following
            for offset, value in values:
                # A batch may begin before the requested offset.
                if value is not None and fetched.fetch_offset <= offset < end:
                    take_in(read.topics, where, offset, value)
    if next_offset <= fetched.fetch_offset:
        raise CorruptDataError(f"{where}: no whole batch came from offset {fetched.fetch_offset} on")
    return next_offset


def _values(
    data: bytes | memoryview, topic_ids: Collection[bytes], *, scans: bool
) -> Iterator[tuple[int, Iterator[Value]]]:
    """Yield for each batch, or for several, the offset after it and the values that may concern the topics."""
    if not scans:
        return read_values(data)
    # Imported here, because numba takes half a second to import.
    from tiered_stream.records.value_scan import scan_values

    return scan_values(data, topic_ids)
