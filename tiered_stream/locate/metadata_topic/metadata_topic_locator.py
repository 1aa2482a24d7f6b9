"""Locator for stock brokers: it reads `__remote_log_metadata`, which the brokers write for each other (KIP-405)."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.leader_epochs import BrokerLineages, Lineage
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import FetchedRecords, FetchTerms, fetch_first_batches, fetch_records
from tiered_stream.errors import BrokerError, BrokerUnavailableError, CorruptDataError, UnsupportedDataError
from tiered_stream.locate.index_files import DEFAULT_CACHE_BYTES
from tiered_stream.locate.metadata_topic.compacted_segments import CompactedSegments
from tiered_stream.locate.metadata_topic.metadata_log import MetadataLog
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.locate.segment_columns import Segments
from tiered_stream.locate.segment_metadata_locator import SegmentMetadataLocator
from tiered_stream.locate.visible_segments import VisibleSegments, visible_segments
from tiered_stream.model import AbortedTransaction, PartialAnswer, RemoteLogSegment, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

PATIENCE_MS = 5_000
"""Maximum time to wait for a partition's leader, in ms, if brokers can serve the partition's records later."""

_SEAM_MAX_WAIT_MS = 500
_SEAM_ATTEMPTS = 10
_SEAM_BYTES = (4 << 10, 64 << 10, 1 << 20)
"""Size limits in bytes for the record batches that one Fetch requests of many partitions.

Each batch is at a seam, the offset at which the tiered segments of its partition end. The limits are tried in this
order, because most topics have small batches.
"""
_RECENT_SECONDS = 60.0
"""Maximum age in seconds of the result of `segments` that the next call of `locate` uses again.

Between the two calls, Spark writes the micro-batch's offsets to its checkpoint.
"""
_LEFT_TO_BROKERS = (BrokerUnavailableError, CorruptDataError, UnsupportedDataError)


@dataclass(frozen=True, slots=True)
class View:
    """Tiered part of a partition: the segments whose records belong to the log (`visible`), and the topic's id.

    `inputs` are the segments, the end offset of each leader epoch, and the log start offset, from which `visible` was
    computed. If the segments are the same object again, and the rest is equal, `visible` is not computed again.
    """

    topic_id: UUID
    visible: VisibleSegments
    inputs: tuple[Segments | None, Lineage, int] = (None, {}, 0)


class MetadataTopicLocator(SegmentMetadataLocator):
    """Locator that reads segments from the metadata topic `__remote_log_metadata`.

    Leader epochs, log start offsets and aborted transactions are requested from the partitions' leaders. If a topic was
    deleted and created again, the segments of the new topic are located. `close` closes neither the client nor the
    fetcher. Many threads may call `views` and `location`, but only one thread at a time per partition.

    Args:
        falls_back: the brokers serve a partition if its metadata is unavailable or unreadable, and a segment if the
            storage does not return its indexes. If false, errors are raised.
        patience_ms: maximum time in ms to wait for a leader; None: `default.api.timeout.ms`.
        snapshots: snapshots of the metadata topic's records; None: the metadata topic is read from the start.
    """

    name = "metadata-topic"

    def __init__(
        self,
        client: BrokerClient,
        fetcher: RemoteStorageFetcher,
        isolation: IsolationLevel,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        *,
        falls_back: bool = False,
        patience_ms: int | None = None,
        snapshots: MetadataSnapshots | None = None,
    ) -> None:
        super().__init__(fetcher, isolation, cache_bytes, falls_back=falls_back)
        self._client = client
        self._patience_ms = patience_ms
        self._offsets = BrokerOffsetReader(client, isolation)
        self._log = MetadataLog(client, patience_ms, snapshots)
        self._compacted_segments = CompactedSegments(fetcher, self.executor, falls_back=falls_back)
        self._lineages = BrokerLineages(client, patience_ms)
        self._topic_ids: dict[str, UUID] = {}
        self._views: dict[TopicPartition, View] = {}
        self._joined: dict[TopicPartition, tuple[Segments, list[RemoteLogSegment], Segments]] = {}
        """By partition, segments of the metadata topic, segments that the storage completed, and both together."""
        self._seams: dict[TopicPartition, tuple[tuple[UUID, int], tuple[AbortedTransaction, ...]]] = {}
        self._recent: tuple[float, Mapping[TopicPartition, VisibleSegments]] | None = None

    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        answer = self.views(partitions)
        for partition, fault in answer.faults.items():
            if not (self.falls_back and isinstance(fault, _LEFT_TO_BROKERS)):
                raise fault
            log.warning("%s is read from the broker, what is tiered of it is not known: %s", partition, fault)
        return {partition: view.visible for partition, view in answer.found.items()}

    def _remember_visible(self, visible: Mapping[TopicPartition, VisibleSegments]) -> None:
        self._recent = time.monotonic(), visible

    def _recently_visible(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        recent, self._recent = self._recent, None
        if recent and time.monotonic() - recent[0] < _RECENT_SECONDS and recent[1].keys() >= set(partitions):
            return recent[1]
        return self.visible_of(partitions)

    def views(self, partitions: Collection[TopicPartition]) -> PartialAnswer[TopicPartition, View]:
        """Read new records of the metadata topic, and return by partition its tiered part (`View`).

        A partition has a fault if its leader or its metadata partition cannot be reached, or one of its metadata
        records cannot be read.

        Raises:
            UnknownTopicError: a topic does not exist.
            BrokerError: no broker can be reached.
        """
        if not partitions:
            return PartialAnswer({}, {})
        topics = self._describe({partition.topic for partition in partitions})
        ids = {partition: topics[partition.topic].topic_id for partition in partitions}
        tables = self._tables(partitions, topics)
        segments = {
            id_partition.topic_partition: table.segments(id_partition) for id_partition, table in tables.found.items()
        }
        for partition, completed in self._completed(tables.found).items():
            segments[partition] = self._with_completed(partition, segments[partition], completed)
        tiered = {partition: found for partition, found in segments.items() if found}
        epochs = {partition: found.leader_epochs for partition, found in tiered.items()}
        lineages = self._lineages.of(epochs, topics)
        starts = self._offsets.special_offsets(EARLIEST, lineages.found, self._patience_ms)
        views = {partition: View(ids[partition], VisibleSegments()) for partition in segments.keys() - tiered.keys()}
        for partition, start in starts.found.items():
            views[partition] = self._view(
                partition, ids[partition], tiered[partition], lineages.found[partition], start
            )
        faults = {id_partition.topic_partition: fault for id_partition, fault in tables.faults.items()}
        return PartialAnswer(views, {**faults, **lineages.faults, **starts.faults})

    def read_metadata(self, partitions: Collection[TopicPartition]) -> None:
        """Read the metadata records of all `partitions` together, so that `views` then reads only newer records."""
        self._tables(partitions, self._describe({partition.topic for partition in partitions}))

    def _tables(
        self, partitions: Collection[TopicPartition], topics: Mapping[str, TopicMetadata]
    ) -> PartialAnswer[TopicIdPartition, SegmentTable]:
        id_partitions = [TopicIdPartition(topics[partition.topic].topic_id, partition) for partition in partitions]
        return self._log.tables(id_partitions, topics[REMOTE_LOG_METADATA_TOPIC])

    def _completed(
        self, tables: Mapping[TopicIdPartition, SegmentTable]
    ) -> dict[TopicPartition, list[RemoteLogSegment]]:
        """Return by partition the segments of which the metadata topic has only an update, completed from the storage.

        `tables` has the table with a partition's segments, by partition.
        """
        alone = {
            id_partition.topic_partition: updates
            for id_partition, table in tables.items()
            if (updates := table.lone_updates(id_partition))
        }
        if not alone:
            return {}
        first = [partition for partition, updates in alone.items() if any(update.base_offset < 0 for update in updates)]
        starts = self._offsets.special_offsets(EARLIEST, first, self._patience_ms).found if first else {}
        return self._compacted_segments.complete(alone, starts)

    def _describe(self, topics: Collection[str]) -> dict[str, TopicMetadata]:
        """Request and return the metadata of `topics` and of the metadata topic, and keep the topics' ids."""
        described = self._client.metadata([*topics, REMOTE_LOG_METADATA_TOPIC])
        self._topic_ids.update({topic: described[topic].topic_id for topic in topics})
        return described

    def _with_completed(
        self, partition: TopicPartition, segments: Segments, completed: list[RemoteLogSegment]
    ) -> Segments:
        """Return `segments` and `completed` together; the result is the same object as long as both stay the same."""
        known = self._joined.get(partition)
        if known is None or known[:2] != (segments, completed):
            known = segments, completed, Segments.of([*segments, *completed])
            self._joined[partition] = known
        return known[2]

    def _view(
        self, partition: TopicPartition, topic_id: UUID, segments: Segments, lineage: Lineage, log_start_offset: int
    ) -> View:
        view, inputs = self._views.get(partition), (segments, dict(lineage), log_start_offset)
        if view is None or (view.topic_id, view.inputs) != (topic_id, inputs):
            visible = visible_segments(segments, lineage, log_start_offset)
            view = self._views[partition] = View(topic_id, visible, inputs)
        return view

    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        """Return the aborted transactions that have records before and after a seam, by seam.

        A seam is a pair of a partition and an offset. At this offset, the partition's tiered segments end, or a gap
        between them begins, and transactions of earlier records may still be open. If a partition's leader is
        unavailable and `self.falls_back` is true, its seams are left out of the result, and brokers serve the offsets
        around them. The result for the last seam of each partition is cached, because the outcome of a transaction with
        tiered records never changes.

        Raises:
            BrokerUnavailableError: a partition's leader is unavailable, and `self.falls_back` is false.
        """
        unavailable = self._fetch_seams(dict(seams))
        aborted = {}
        for partition, seam in seams:
            try:
                if partition in unavailable:
                    raise unavailable[partition]
                aborted[partition, seam] = self._aborted_at(partition, seam)
            except BrokerUnavailableError as error:
                if not self.falls_back:
                    raise
                log.warning("%s is read from the broker around offset %d: %s", partition, seam, error)
        return aborted

    def _prefetch_aborted(self, seams: Mapping[TopicPartition, int]) -> None:
        with suppress(BrokerError):
            self._fetch_seams(seams)

    def _fetch_seams(self, seams: Mapping[TopicPartition, int]) -> dict[TopicPartition, BrokerUnavailableError]:
        """Request and cache the aborted transactions that have records before and after the offsets in `seams`.

        `seams` has by partition the offset at which the tiered segments end, or a gap between them begins, while
        transactions may be open. Only offsets that are not cached yet are requested, all together. Nothing is requested
        if the cache lacks only one of the offsets. A Fetch of many partitions returns no batch that is larger than its
        size limit. So offsets with larger batches stay out of the cache.

        Returns:
            The errors of the leaders that are not available, by partition.
        """
        unknown = {partition: seam for partition, seam in seams.items() if self._known_aborted(partition, seam) is None}
        if len(unknown) < 2:
            return {}
        left = {
            partition: seam for partition, seam in unknown.items()
            if (topic := self._client.topic(partition.topic)) and topic.topic_id == self._topic_ids[partition.topic]
        }  # fmt: skip
        unavailable: dict[TopicPartition, BrokerUnavailableError] = {}
        for max_bytes in _SEAM_BYTES:
            answer = fetch_first_batches(
                self._client, left, max_bytes, IsolationLevel.READ_COMMITTED, self._patience_ms
            )
            for partition, fault in answer.faults.items():
                if isinstance(fault, BrokerUnavailableError):
                    unavailable[partition] = fault
            for partition, fetched in answer.found.items():
                if fetched.records:
                    self._remember_aborted(partition, left[partition], fetched)
            left = {
                partition: left[partition] for partition, fetched in answer.found.items()
                if not fetched.records and fetched.last_stable_offset > left[partition]
            }  # fmt: skip
        return unavailable

    def _aborted_at(self, partition: TopicPartition, seam: int) -> tuple[AbortedTransaction, ...]:
        known = self._known_aborted(partition, seam)
        return self._remember_aborted(partition, seam, self._fetch_at(partition, seam)) if known is None else known

    def _known_aborted(self, partition: TopicPartition, seam: int) -> tuple[AbortedTransaction, ...] | None:
        key, known = self._seams.get(partition, (None, ()))
        return known if key == (self._topic_ids[partition.topic], seam) else None

    def _remember_aborted(
        self, partition: TopicPartition, seam: int, fetched: FetchedRecords
    ) -> tuple[AbortedTransaction, ...]:
        aborted = tuple(
            AbortedTransaction(producer_id, first_offset, seam)
            for producer_id, first_offset in fetched.aborted_transactions
            if first_offset < seam
        )
        self._seams[partition] = (self._topic_ids[partition.topic], seam), aborted
        return aborted

    def _fetch_at(self, partition: TopicPartition, seam: int) -> FetchedRecords:
        """Return a read_committed Fetch response with the aborted transactions that began before the offset `seam`.

        A broker names aborted transactions only with records. If no record can be read at `seam`, because `seam` is the
        last stable offset, the record before `seam` is fetched. The response also names transactions that were aborted
        after `seam`.

        Raises:
            BrokerUnavailableError: the broker returned no records in 10 attempts, or did not respond in time.
        """
        fetched = self._fetch(partition, seam, max_wait_ms=0)
        for _ in range(_SEAM_ATTEMPTS):
            if fetched.records:
                return fetched
            fetched = self._fetch(partition, seam - 1, max_wait_ms=_SEAM_MAX_WAIT_MS)
        raise BrokerUnavailableError(
            f"partition {partition}: the broker gives no records at offset {seam - 1}, which is tiered; without them "
            "it is unknown which transactions around it were aborted"
        )

    def _fetch(self, partition: TopicPartition, offset: int, max_wait_ms: int) -> FetchedRecords:
        topic_id = self._topic_ids[partition.topic]
        terms = FetchTerms(IsolationLevel.READ_COMMITTED, max_bytes=1, max_wait_ms=max_wait_ms, topic_id=topic_id)
        return fetch_records(self._client, partition, offset, terms, self._patience_ms)
