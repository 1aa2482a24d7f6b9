"""The gateway's knowledge of tiered segments, from its own login; only clients that a broker authorized get it."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.list_offsets import EARLIEST_LOCAL, BrokerOffsetReader
from tiered_stream.errors import DataLossError, TieredStreamError, UnknownTopicError
from tiered_stream.gateway.locations.faulty_partitions import FaultyPartitions
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.metadata_topic_locator import PATIENCE_MS, MetadataTopicLocator, View
from tiered_stream.locate.segment_metadata_locator import Visible
from tiered_stream.model import OffsetRange, PartitionRanges, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import LATEST
from tiered_stream.process.single_flight import SingleFlightCache
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

K = TypeVar("K")

_TOPICS_SECONDS = 1.0  # minimum time between two listings of all topics because of an unknown topic id


class TieredSegments:
    """Thread-safe wrapper of the locator `metadata-topic`, for topics that are created and deleted meanwhile.

    One thread at a time refreshes a partition, and other threads wait for its result. If a partition's leader did not
    answer, a background thread tries again, and requests do not wait for that partition.

    Args:
        fresh_seconds: time for which the known segments of a partition are used without a refresh. Clients read
            offsets that were tiered since then from the brokers.
        faulty: records the partitions whose segments cannot be found out.
        snapshots: store for what was read from the metadata topic; None: nothing is stored.
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
        self._locator = MetadataTopicLocator(
            client, fetcher, IsolationLevel.READ_COMMITTED, cache_bytes, patience_ms=PATIENCE_MS, snapshots=snapshots
        )
        self._fresh_seconds = fresh_seconds
        self._faulty = faulty
        self._lock = threading.Lock()
        self._seen: dict[TopicPartition, tuple[float, View]] = {}
        self._looks: dict[TopicPartition, Future[None]] = {}
        self._names: tuple[float, Mapping[UUID, str]] = (float("-inf"), {})
        self._listing: SingleFlightCache[None, Mapping[UUID, str]] = SingleFlightCache(0)
        self._log_ends = BrokerOffsetReader(client, IsolationLevel.READ_UNCOMMITTED)
        self._retries = ThreadPoolExecutor(1, thread_name_prefix="silent-leaders")

    def follow_all(self) -> None:
        """Read the metadata topic for all topics, so that the first requests need not wait for it.

        Raises:
            BrokerError: the brokers cannot be asked, or every partition has failed.
        """
        by_leader: dict[int, dict[TopicPartition, UUID]] = defaultdict(dict)
        for name, topic in self._client.metadata().items():
            for number, each in () if topic.internal else topic.partitions.items():
                by_leader[each.leader_id][TopicPartition(name, number)] = topic.topic_id
        everywhere = {partition for led in by_leader.values() for partition in led}
        self._faulty.keep(everywhere)
        with self._lock:
            self._seen = {each: seen for each, seen in self._seen.items() if each in everywhere}
        with suppress(UnknownTopicError):  # a topic was deleted just now
            self._locator.read_metadata(everywhere)
        for led in by_leader.values():  # one look per leader: no request waits for a leader that it does not need
            self._look(led)
        if (fault := self._faulty.fault_of_all(everywhere)) is not None:
            raise fault

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the topics' names by id; topics that do not exist are left out.

        Raises:
            BrokerError: the brokers cannot be asked.
        """
        listed_at, names = self._names
        if not names.keys() >= set(topic_ids) and time.monotonic() - listed_at > _TOPICS_SECONDS:
            names = self._listing.get(None, self._list_topics)
        return {topic_id: names[topic_id] for topic_id in topic_ids if topic_id in names}

    def _list_topics(self) -> Mapping[UUID, str]:
        names = {found.topic_id: name for name, found in self._client.metadata().items()}
        self._names = time.monotonic(), names
        return names

    def existing(self, named: Mapping[K, TopicPartition]) -> dict[K, TopicPartition]:
        """Return the entries of `named` whose partition exists according to the newest known cluster metadata.

        Without this, one missing partition would fail a request for all of them.
        """
        counts: dict[str, Collection[int]] = {}
        for topic in {partition.topic for partition in named.values()}:
            known = self._client.topic(topic)
            counts[topic] = known.partitions if known else ()
        return {each: partition for each, partition in named.items() if partition.partition in counts[partition.topic]}

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current high watermarks of the partitions whose leaders answer.

        Raises:
            BrokerError: no broker can be asked.
        """
        return self._each(LATEST, partitions)

    def local_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's first offset on its leader's own disk, for leaders that answer; -1: none is there.

        Raises:
            BrokerError: no broker can be asked.
        """
        return self._each(EARLIEST_LOCAL, partitions)

    def _each(self, special: int, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        silent = self._faulty.are_silent(partitions)
        answer = self._log_ends.each(special, set(partitions) - silent, PATIENCE_MS)
        if answer.faults:
            self._faulty.tell(answer.faults.keys(), answer.faults)
        return answer.found

    def visible(self, partitions: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, Visible]:
        """Return the segments that count, sorted and disjoint, by partition.

        A partition is left out if its segments cannot be found out, or if its topic no longer has the given id.

        Args:
            partitions: topic ids by partition.
        """
        self._look(partitions)
        known = partitions.keys() - self._faulty.are_silent(partitions)
        with self._lock:
            seen = {each: self._seen[each][1] for each in known & self._seen.keys()}
        return {each: view.visible for each, view in seen.items() if view.topic_id == partitions[each]}

    def _look(self, partitions: Mapping[TopicPartition, UUID]) -> None:
        """Refresh the known segments of partitions that are out of date, except partitions whose leader is silent.

        Partitions that another thread is refreshing are waited for.
        """
        look: Future[None] = Future()
        silent = self._faulty.are_silent(partitions)
        with self._lock:
            oldest = time.monotonic() - self._fresh_seconds
            stale = [each for each, topic_id in partitions.items() if not self._is_fresh(each, topic_id, oldest)]
            others = {self._looks[each] for each in stale if each in self._looks and each not in silent}
            wanted = [each for each in stale if each not in self._looks and each not in silent]
            self._looks.update(dict.fromkeys(wanted, look))
        if again := self._faulty.to_be_tried(silent):
            self._retries.submit(self._retry, again)
        try:
            if wanted:
                self._find(wanted)
        finally:
            with self._lock:
                for each in wanted:
                    del self._looks[each]
            look.set_result(None)
        for other in others:
            other.result()

    def _retry(self, partitions: Collection[TopicPartition]) -> None:
        try:
            self._find(partitions)
        except TieredStreamError as error:
            log.warning("partitions without a leader cannot be asked for: %s", error)

    def _find(self, partitions: Collection[TopicPartition]) -> None:
        try:
            answer = self._locator.views(partitions)
        except UnknownTopicError:
            topics = self._client.metadata()
            answer = self._locator.views([each for each in partitions if _exists(topics, each)])
        now = time.monotonic()
        with self._lock:
            for each in partitions:
                self._seen.pop(each, None)
            self._seen.update({each: (now, view) for each, view in answer.found.items()})
        self._faulty.tell(partitions, answer.faults)

    def _is_fresh(self, partition: TopicPartition, topic_id: UUID, oldest: float) -> bool:
        # Another topic id than the known one means that the topic was deleted and created again.
        seen = self._seen.get(partition)
        return seen is not None and seen[0] >= oldest and seen[1].topic_id == topic_id

    def expect(self, visible: Mapping[TopicPartition, Visible], ranges: PartitionRanges) -> None:
        """Ask brokers in one round for what `location` needs of these offset ranges in read_committed mode.

        Later calls of `location` then need no requests of their own for it.
        """
        self._locator.prefetch(visible, ranges)

    def location(
        self, visible: Visible, at: int, wanted: OffsetRange, topic_id: UUID, committed: bool
    ) -> SegmentLocation:
        """Return the bytes that hold the offset range `wanted` of the segment `visible[at]`.

        Args:
            committed: include the aborted transactions of the range.

        Raises:
            StorageError, BrokerError, CorruptDataError: an index, or an offset behind the tier, cannot be read.
            DataLossError: the segment belongs to a topic with another id.
        """
        segment = visible[at].segment
        if segment.topic_id != topic_id:
            raise DataLossError(f"{segment.topic_partition} is not of the topic {topic_id} any more")
        return self._locator.location(visible, at, wanted, committed=committed)

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        """Cut a location where record batches begin, into parts of about `target_bytes` (see `Locator.cut`)."""
        return self._locator.cut(location, target_bytes)

    def close(self) -> None:
        """Stop the threads; the caller still has to close the client and the fetcher."""
        self._retries.shutdown(wait=False, cancel_futures=True)
        self._locator.close()


def _exists(topics: Mapping[str, TopicMetadata], partition: TopicPartition) -> bool:
    return partition.topic in topics and partition.partition in topics[partition.topic].partitions
