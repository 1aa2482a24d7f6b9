"""What the gateway knows of the tiered segments, by its own login; given out to whom a broker has authorized."""

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
from tiered_stream.gateway.faulty_partitions import FaultyPartitions
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.metadata_topic_locator import PATIENCE_MS, MetadataTopicLocator, View
from tiered_stream.locate.segment_metadata_locator import Visible
from tiered_stream.model import OffsetRange, PartitionRanges, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import LATEST
from tiered_stream.single_flight import SingleFlightCache
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

K = TypeVar("K")

_TOPICS_SECONDS = 1.0  # the least time between two looks at all topics, for ids that are not known


class TieredSegments:
    """What the locator `metadata-topic` knows, for many threads and for topics that come and go.

    A partition is looked at by one thread at a time, and others wait for what it finds. A partition whose leader did
    not answer is tried again in a thread of its own, and nobody waits for it meanwhile.

    Args:
        fresh_seconds: for so long, what is known of a partition is taken to be so. What was tiered since then is read
            from the brokers.
        faulty: what cannot be known is told there.
        snapshots: where what the metadata topic told is kept.
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
        """Read what the metadata topic says of every topic, so that the first requests need not wait for it.

        Raises:
            BrokerError: nothing can be asked of any partition.
        """
        by_leader: dict[int, dict[TopicPartition, UUID]] = defaultdict(dict)
        for name, topic in self._client.metadata().items():
            for number, each in () if topic.internal else topic.partitions.items():
                by_leader[each.leader_id][TopicPartition(name, number)] = topic.topic_id
        everywhere = {partition for led in by_leader.values() for partition in led}
        self._faulty.keep(everywhere)
        with self._lock:
            self._seen = {each: seen for each, seen in self._seen.items() if each in everywhere}
        with suppress(UnknownTopicError):  # it went just now
            self._locator.follow(everywhere)
        for led in by_leader.values():  # so that no request waits for a leader that it does not ask
            self._look(led)
        if (fault := self._faulty.fault_of_all(everywhere)) is not None:
            raise fault

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """The names of those of the topics that exist.

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
        """Those of the partitions that the brokers told of last: one that is not there costs others nothing."""
        counts: dict[str, Collection[int]] = {}
        for topic in {partition.topic for partition in named.values()}:
            known = self._client.topic(topic)
            counts[topic] = known.partitions if known else ()
        return {each: partition for each, partition in named.items() if partition.partition in counts[partition.topic]}

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks of now, where the leader says so.

        Raises:
            BrokerError: as `BrokerOffsetReader.each`.
        """
        return self._each(LATEST, partitions)

    def local_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the leaders' own disks begin, where the leader says so; -1: nowhere.

        Raises:
            BrokerError: as `BrokerOffsetReader.each`.
        """
        return self._each(EARLIEST_LOCAL, partitions)

    def _each(self, special: int, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        silent = self._faulty.are_silent(partitions)
        answer = self._log_ends.each(special, set(partitions) - silent, PATIENCE_MS)
        if answer.faults:
            self._faulty.tell(answer.faults.keys(), answer.faults)
        return answer.found

    def visible(self, partitions: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, Visible]:
        """The segments that count, sorted and disjoint, by partition; none where they cannot be known, or where the
        topic now has another id.
        """
        self._look(partitions)
        known = partitions.keys() - self._faulty.are_silent(partitions)
        with self._lock:
            seen = {each: self._seen[each][1] for each in known & self._seen.keys()}
        return {each: view.visible for each, view in seen.items() if view.topic_id == partitions[each]}

    def _look(self, partitions: Mapping[TopicPartition, UUID]) -> None:
        """See to it that what is known of the partitions is fresh, where their leaders are there to be asked."""
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
            answer = self._locator.look(partitions)
        except UnknownTopicError:
            topics = self._client.metadata()
            answer = self._locator.look([each for each in partitions if _exists(topics, each)])
        now = time.monotonic()
        with self._lock:
            for each in partitions:
                self._seen.pop(each, None)
            self._seen.update({each: (now, view) for each, view in answer.found.items()})
        self._faulty.tell(partitions, answer.faults)

    def _is_fresh(self, partition: TopicPartition, topic_id: UUID, oldest: float) -> bool:
        # An id that we do not know the topic by is of a topic that was made again: the broker knows it.
        seen = self._seen.get(partition)
        return seen is not None and seen[0] >= oldest and seen[1].topic_id == topic_id

    def expect(self, visible: Mapping[TopicPartition, Visible], ranges: PartitionRanges) -> None:
        """Spare `location` of these offsets, for read_committed, what can be asked for all of them together."""
        self._locator.expect(visible, ranges)

    def location(
        self, visible: Visible, at: int, wanted: OffsetRange, topic_id: UUID, committed: bool
    ) -> SegmentLocation:
        """Where `wanted`, which lies in `visible[at]`, is.

        Raises:
            StorageError, BrokerError, CorruptDataError: an index, or what lies beyond the tier, cannot be had.
            DataLossError: the topic now has another id.
        """
        segment = visible[at].segment
        if segment.topic_id != topic_id:
            raise DataLossError(f"{segment.topic_partition} is not of the topic {topic_id} any more")
        return self._locator.location(visible, at, wanted, committed=committed)

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        """As `Locator.cut`."""
        return self._locator.cut(location, target_bytes)

    def close(self) -> None:
        """Let go of threads; the client and the fetcher stay their owner's."""
        self._retries.shutdown(wait=False, cancel_futures=True)
        self._locator.close()


def _exists(topics: Mapping[str, TopicMetadata], partition: TopicPartition) -> bool:
    return partition.topic in topics and partition.partition in topics[partition.topic].partitions
