"""`__remote_log_metadata`, read partition by partition: all of it first, later only what is new.

What it told is kept (`metadata_snapshots`). The next query goes on from there, if the log still holds the last batch
that was read: of another log, nothing would be known.
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
from tiered_stream.process import collection_paused
from tiered_stream.records.header import ATTRIBUTES_AT, CRC_AT, whole_batches
from tiered_stream.records.values import Value, read_values
from tiered_stream.single_flight import SingleFlightCache

log = logging.getLogger(__name__)

_FETCH_BYTES = 8 << 20
_FETCH_WAIT_MS = 500
_READERS = 4
"""Metadata partitions that are read side by side."""
_SCANNED_RECORDS = 100_000
"""From so many on, the start of the compiled scan costs less than to read them in plain Python."""
_KEPT_RECORDS = 1_000
"""So many of a metadata partition are worth a file, which spares the next query their reading."""
_EMPTY_ANSWERS = 5  # in a row, below the high watermark, before it is taken to be so

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
    first = TopicPartition(REMOTE_LOG_METADATA_TOPIC, number)
    end = BrokerOffsetReader(client, _ISOLATION).latest([first])[first]
    with suppress(OffsetOutOfRangeError):  # said to who may read; another leader's log may end earlier
        fetch_records(client, first, end, isolation=_ISOLATION, max_bytes=1, max_wait_ms=0)


Segments = tuple[RemoteLogSegment, ...]

_LogKey = tuple[UUID, int, int]
"""A metadata partition: the metadata topic's id and how many partitions it has, and its number."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be known of a metadata partition: of which topics, by their ids, and where its log begins and ends."""

    where: TopicPartition
    topic_ids: frozenset[UUID]
    start: int
    end: int
    scans: bool
    """There is so much to read that it is worth the start of the compiled scan."""


@dataclass(slots=True)
class _ReadLog:
    """A metadata partition as far as it has been read: what it told of each topic, by the id's bytes."""

    topics: dict[bytes, ToldTopic] = field(default_factory=dict)
    not_kept: int = 0
    """Records that were read since it was last written down."""

    def is_read(self, wanted: _Wanted, *, beyond: bool = True) -> bool:
        """Whether all is known up to the end that is wanted; perhaps `beyond` it, too."""
        told = [self.topics.get(topic_id.bytes) for topic_id in wanted.topic_ids]
        return all(each and (each.position == wanted.end or (beyond and each.position > wanted.end)) for each in told)


class MetadataLog:
    """What the metadata topic tells. Serves many threads: one at a time reads a metadata partition, others wait for it.

    Args:
        patience_ms: for how long a metadata partition that does not answer is waited for.
        snapshots: where what was told is kept.
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
        """The segments of `partitions` that may be read, up to the high watermark of now.

        A fault is that of the metadata partition that tells of a partition, or of a record of its own: then it names
        the metadata partition and the offset.

        Args:
            topic_id: of the metadata topic, as it is now; `partition_count` likewise.

        Raises: as `BrokerOffsetReader.each`.
        """
        told = self._tables(partitions, topic_id, partition_count)
        return PartialAnswer({each: table.segments(each) for each, table in told.found.items()}, told.faults)

    def alone(
        self, partitions: Collection[TopicIdPartition], topic_id: UUID, partition_count: int
    ) -> dict[TopicIdPartition, tuple[FinishedAlone, ...]]:
        """The finished copies of which only an update is known, as `segments` has read them; without a request."""
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
        """As `segments`, but also those that are being copied or deleted, each with its state."""
        told = self._tables(partitions, topic_id, partition_count)
        return PartialAnswer({each: table.tracked(each) for each, table in told.found.items()}, told.faults)

    def _tables(
        self, partitions: Collection[TopicIdPartition], topic_id: UUID, partition_count: int
    ) -> PartialAnswer[TopicIdPartition, SegmentTable]:
        """The tables that know the partitions, up to the high watermark of now."""
        for key in [key for key in list(self._logs) if key[:2] != (topic_id, partition_count)]:
            self._logs.pop(key, None)  # of a metadata topic that was made again
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
        """The metadata partition read up to the end that is wanted, by a thread of ours or by one that is at it."""
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
        """Read on from where we are, or anew where that says nothing."""
        read = self._logs.setdefault(key, _ReadLog())
        where, end = wanted.where, wanted.end
        new = {topic_id for topic_id in wanted.topic_ids if topic_id.bytes not in read.topics}
        read.topics.update(self._known_before(key, new, wanted) if new else {})
        if max(topic.position for topic in read.topics.values()) > end:
            # Read by a thread that asked later, or the log was cut off.
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
        """Fetch from `position` on; None: compaction has left nothing from there on (KIP-1266)."""
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
        """Topics that are new to us, as far as they are kept and can be gone on from."""
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
        """Write down what was told, where that spares the next query much."""
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
        """The one that holds the offset before `position`, if the log has it."""
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
    """Take in what was fetched; the offset to go on from."""
    next_offset = 0
    with naming(where):
        for following, values in _values(fetched.records, read.topics, scans=scans):
            next_offset = following
            for offset, value in values:
                # A batch may begin before the offset that was asked for.
                if value is not None and fetched.fetch_offset <= offset < end:
                    take_in(read.topics, where, offset, value)
    if next_offset <= fetched.fetch_offset:
        raise CorruptDataError(f"{where}: no whole batch came from offset {fetched.fetch_offset} on")
    return next_offset


def _values(
    data: bytes | memoryview, topic_ids: Collection[bytes], *, scans: bool
) -> Iterator[tuple[int, Iterator[Value]]]:
    """By batch, or by several, the offset after it and the values that may tell of the topics."""
    if not scans:
        return read_values(data)
    # Imported here: numba takes half a second.
    from tiered_stream.records.value_scan import scan_values

    return scan_values(data, topic_ids)
