"""The locator that works on any stock KIP-405 cluster: it reads what the brokers tell each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import FetchedRecords, fetch_records
from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.locate.broker_lineage import BrokerLineages
from tiered_stream.locate.index_cache import DEFAULT_CACHE_BYTES
from tiered_stream.locate.lineage import Lineage, VisibleSegment, visible_segments
from tiered_stream.locate.metadata_topic.metadata_log import MetadataLog
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from tiered_stream.locate.segment_metadata_locator import SegmentMetadataLocator, Visible
from tiered_stream.model import AbortedTransaction, RemoteLogSegment, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_SEAM_WAIT_MS = 500
_SEAM_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class _View:
    """The visible segments and what they were made from, so that nothing is computed anew while nothing changes."""

    made_from: tuple[tuple[RemoteLogSegment, ...], dict[int, int], int]
    visible: tuple[VisibleSegment, ...]


class MetadataTopicLocator(SegmentMetadataLocator):
    """Segments by `__remote_log_metadata`, lineage, log start and open transactions by the partitions' leaders.

    A topic that was made again is another topic, and its segments are located. The client and the fetcher stay their
    owner's to close.
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
    ) -> None:
        super().__init__(fetcher, isolation, cache_bytes, falls_back=falls_back)
        self._client = client
        self._offsets = BrokerOffsetReader(client, isolation)
        self._log = MetadataLog(client)
        self._lineages = BrokerLineages(client)
        self._topic_ids: dict[str, UUID] = {}
        self._views: dict[TopicPartition, _View] = {}
        self._seams: dict[TopicPartition, tuple[int, tuple[AbortedTransaction, ...]]] = {}

    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Visible]:
        if not partitions:
            return {}
        topics = self._describe({partition.topic for partition in partitions})
        metadata_topic = topics[REMOTE_LOG_METADATA_TOPIC]
        ids = {partition: TopicIdPartition(topics[partition.topic].topic_id, partition) for partition in partitions}
        self._log.catch_up(list(ids.values()), metadata_topic.topic_id, len(metadata_topic.partitions))
        segments = {partition: self._log.table.segments(ids[partition]) for partition in partitions}
        tiered = [partition for partition in partitions if segments[partition]]
        lineages = self._lineages.of(
            {partition: _epochs(segments[partition]) for partition in tiered},
            {partition: topics[partition.topic].partitions[partition.partition].leader_epoch for partition in tiered},
        )
        starts = self._offsets.earliest(tiered) if tiered else {}
        return {
            partition: self._view(partition, segments[partition], lineages[partition], starts[partition])
            for partition in tiered
        }

    def topic_id(self, topic: str) -> UUID | None:
        """The id that the topic had when it was last asked for."""
        return self._topic_ids.get(topic)

    def _describe(self, topics: Collection[str]) -> dict[str, TopicMetadata]:
        """The topics and the metadata topic as they are now; nothing that was known of a topic's predecessor holds."""
        described = self._client.metadata([*topics, REMOTE_LOG_METADATA_TOPIC])
        remade = {topic for topic in topics if self._topic_ids.get(topic) not in (None, described[topic].topic_id)}
        if remade:
            self._lineages = BrokerLineages(self._client)
            self._seams = {each: seam for each, seam in self._seams.items() if each.topic not in remade}
        self._topic_ids.update({topic: described[topic].topic_id for topic in topics})
        return described

    def _view(
        self, partition: TopicPartition, segments: tuple[RemoteLogSegment, ...], lineage: Lineage, log_start_offset: int
    ) -> Visible:
        made_from = (segments, dict(lineage), log_start_offset)
        view = self._views.get(partition)
        if view is None or view.made_from != made_from:
            view = self._views[partition] = _View(made_from, visible_segments(segments, lineage, log_start_offset))
        return view.visible

    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        return {(partition, seam): self._aborted_at(partition, seam) for partition, seam in seams}

    def _aborted_at(self, partition: TopicPartition, seam: int) -> tuple[AbortedTransaction, ...]:
        """What is decided of tiered offsets stays decided: each seam needs asking once."""
        known = self._seams.get(partition)
        if known is None or known[0] != seam:
            fetched = self._fetch_at(partition, seam)
            open_there = tuple(
                AbortedTransaction(producer_id, first_offset, seam)
                for producer_id, first_offset in fetched.aborted_transactions
                if first_offset < seam
            )
            known = self._seams[partition] = (seam, open_there)
        return known[1]

    def _fetch_at(self, partition: TopicPartition, seam: int) -> FetchedRecords:
        """A read_committed Fetch whose answer names every aborted transaction that reaches from below `seam` to it.

        A broker names them only beside records. Where none can be read at the seam (it is the last stable offset), a
        transaction that was aborted beyond it is named beside the record before it.
        """
        fetched = self._fetch(partition, seam, max_wait_ms=0)
        for _ in range(_SEAM_ATTEMPTS):
            if fetched.records:
                return fetched
            fetched = self._fetch(partition, seam - 1, max_wait_ms=_SEAM_WAIT_MS)
        raise BrokerUnavailableError(
            f"partition {partition}: the broker gives no records at offset {seam - 1}, which is tiered; without them "
            "it is unknown which transactions around it were aborted"
        )

    def _fetch(self, partition: TopicPartition, offset: int, max_wait_ms: int) -> FetchedRecords:
        return fetch_records(
            self._client, partition, offset, isolation=IsolationLevel.READ_COMMITTED,
            max_bytes=1, max_wait_ms=max_wait_ms, topic_id=self._topic_ids[partition.topic],
        )  # fmt: skip


def _epochs(segments: Sequence[RemoteLogSegment]) -> set[int]:
    return {entry.epoch for segment in segments for entry in segment.leader_epochs}
