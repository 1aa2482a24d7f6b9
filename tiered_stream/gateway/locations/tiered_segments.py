"""Lookup of tiered segments with the gateway's own login, for clients that a broker has authorized."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.list_offsets import EARLIEST_LOCAL, BrokerOffsetReader
from tiered_stream.errors import TieredStreamError, UnknownTopicError
from tiered_stream.gateway.locations.faulty_partitions import FaultyPartitions
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.metadata_topic_locator import PATIENCE_MS, MetadataTopicLocator, View
from tiered_stream.locate.visible_segments import VisibleSegments
from tiered_stream.model import TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import LATEST
from tiered_stream.process.caches import SingleFlightCache
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

_TOPICS_SECONDS = 1.0  # minimum time between two listings of all topics because of an unknown topic id


class TieredSegments:
    """Lookup of partitions' tiered segments in the metadata topic; topics may be created and deleted. Thread-safe.

    One thread at a time refreshes a partition, and other threads wait for its result. If a partition's leader did not
    respond, a background thread repeats the lookup, and requests do not wait for that partition.

    Args:
        client: connects to the brokers with the gateway's own login.
        fetcher: reads indexes from the storage.
        cache_bytes: maximum memory of the cached indexes.
        fresh_seconds: time for which a partition's list of segments is used without a refresh. Clients read offsets
            that were tiered after the last refresh from the brokers.
        faulty: records the partitions whose segments cannot be looked up.
        snapshots: store for records of the metadata topic. If it is None, nothing is stored.
    """

    def __init__(
        self,
        client: BrokerClient,
        fetcher: RemoteStorageFetcher,
        cache_bytes: int,
        fresh_seconds: float,
        faulty: FaultyPartitions,
        snapshots: MetadataSnapshots | None = None,
    ) -> None:
        self._client = client
        self.locator = MetadataTopicLocator(
            client, fetcher, IsolationLevel.READ_COMMITTED, cache_bytes, patience_ms=PATIENCE_MS, snapshots=snapshots
        )
        """Locator that finds the bytes of given offsets in a partition's visible segments."""
        self._fresh_seconds = fresh_seconds
        self._faulty = faulty
        self._lock = threading.Lock()
        self._views: dict[TopicPartition, tuple[float, View]] = {}
        self._refreshing: dict[TopicPartition, Future[None]] = {}
        self._names: tuple[float, Mapping[UUID, str]] = (float("-inf"), {})
        self._listing: SingleFlightCache[None, Mapping[UUID, str]] = SingleFlightCache(0)
        self._offset_reader = BrokerOffsetReader(client, IsolationLevel.READ_UNCOMMITTED)
        self._retries = ThreadPoolExecutor(1, thread_name_prefix="silent-leaders")

    def refresh_all(self) -> None:
        """Look up the segments of all partitions of topics that are not internal, before the first requests need them.

        Partitions that no longer exist are forgotten.

        Raises:
            BrokerError: no broker can be asked, or the lookup fails with a BrokerError for every partition.
        """
        by_leader: dict[int, dict[TopicPartition, UUID]] = defaultdict(dict)
        for name, topic in self._client.metadata().items():
            for number, partition in () if topic.internal else topic.partitions.items():
                by_leader[partition.leader_id][TopicPartition(name, number)] = topic.topic_id
        existing = {partition for partitions in by_leader.values() for partition in partitions}
        self._faulty.forget_others(existing)
        with self._lock:
            self._views = {partition: view for partition, view in self._views.items() if partition in existing}
        with suppress(UnknownTopicError):  # a topic was deleted just now
            self.locator.read_metadata(existing)
        for partitions in by_leader.values():  # so a leader that does not respond delays no other partitions
            self._refresh(partitions)
        if (fault := self._faulty.common_fault(existing)) is not None:
            raise fault

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the topics' names by id, without unknown ids.

        If an id is unknown, all topics are listed again first, but at most once a second.

        Raises:
            BrokerError: the brokers cannot be asked.
        """
        listed_at, names = self._names
        if not names.keys() >= set(topic_ids) and time.monotonic() - listed_at > _TOPICS_SECONDS:
            names = self._listing.get(None, self._list_topics)
        return {topic_id: names[topic_id] for topic_id in topic_ids if topic_id in names}

    def _list_topics(self) -> Mapping[UUID, str]:
        names = {topic.topic_id: name for name, topic in self._client.metadata().items()}
        self._names = time.monotonic(), names
        return names

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark by partition, without partitions that do not exist or whose leaders do not respond.

        Raises:
            BrokerError: no broker can be asked.
        """
        names = {partition.topic for partition in partitions}
        topics = {name: topic for name in names if (topic := self._client.topic(name)) is not None}
        # A partition that does not exist would make the request fail for all partitions.
        return self._offsets(LATEST, [partition for partition in partitions if _exists(topics, partition)])

    def local_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's first offset on its leader's own disk, or -1 if the disk has none.

        Partitions whose leaders do not respond are left out.

        Raises:
            BrokerError: no broker can be asked.
        """
        return self._offsets(EARLIEST_LOCAL, partitions)

    def _offsets(self, special: int, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        silent = self._faulty.silent_among(partitions)
        offsets = self._offset_reader.special_offsets(special, set(partitions) - silent, PATIENCE_MS)
        if offsets.faults:
            self._faulty.record(offsets.faults.keys(), offsets.faults)
        return offsets.found

    def visible(self, partitions: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, VisibleSegments]:
        """Return each partition's visible segments (segments of its lineage), sorted by offset and disjoint.

        A partition is left out if its segments cannot be looked up, or if its topic no longer has the id in
        `partitions`.

        Args:
            partitions: topic ids by partition.
        """
        self._refresh(partitions)
        known = partitions.keys() - self._faulty.silent_among(partitions)
        with self._lock:
            views = {partition: self._views[partition][1] for partition in known & self._views.keys()}
        return {partition: view.visible for partition, view in views.items() if view.topic_id == partitions[partition]}

    def _refresh(self, partitions: Mapping[TopicPartition, UUID]) -> None:
        """Look up the segments of partitions whose last lookup is older than `fresh_seconds` or had another topic id.

        Wait for partitions that other threads are looking up. A partition whose last lookup failed with a retriable
        error is left to a background thread.

        Args:
            partitions: topic ids by partition.
        """
        refreshed: Future[None] = Future()
        silent = self._faulty.silent_among(partitions)
        with self._lock:
            oldest = time.monotonic() - self._fresh_seconds
            stale = [
                partition
                for partition, topic_id in partitions.items()
                if partition not in silent and not self._is_fresh(partition, topic_id, oldest)
            ]
            others = {self._refreshing[partition] for partition in stale if partition in self._refreshing}
            mine = [partition for partition in stale if partition not in self._refreshing]
            self._refreshing.update(dict.fromkeys(mine, refreshed))
        if due := self._faulty.due_for_retry(silent):
            with suppress(RuntimeError):  # `close` was called
                self._retries.submit(self._retry, due)
        try:
            if mine:
                self._read(mine)
        finally:
            with self._lock:
                for partition in mine:
                    del self._refreshing[partition]
            refreshed.set_result(None)
        for other in others:
            other.result()

    def _retry(self, partitions: Collection[TopicPartition]) -> None:
        try:
            self._read(partitions)
        except TieredStreamError as error:
            log.warning("partitions without a leader cannot be asked for: %s", error)

    def _read(self, partitions: Collection[TopicPartition]) -> None:
        try:
            views = self.locator.views(partitions)
        except UnknownTopicError:
            topics = self._client.metadata()
            views = self.locator.views([partition for partition in partitions if _exists(topics, partition)])
        now = time.monotonic()
        with self._lock:
            for partition in partitions:
                self._views.pop(partition, None)
            self._views.update({partition: (now, view) for partition, view in views.found.items()})
        self._faulty.record(partitions, views.faults)

    def _is_fresh(self, partition: TopicPartition, topic_id: UUID, oldest: float) -> bool:
        # Another topic id than the known one means that the topic was deleted and created again.
        read_at, view = self._views.get(partition, (oldest, None))
        return view is not None and read_at >= oldest and view.topic_id == topic_id

    def close(self) -> None:
        """Stop the background threads; the caller still has to close the client and the fetcher."""
        self._retries.shutdown(wait=False, cancel_futures=True)
        self.locator.close()


def _exists(topics: Mapping[str, TopicMetadata], partition: TopicPartition) -> bool:
    return partition.topic in topics and partition.partition in topics[partition.topic].partitions
