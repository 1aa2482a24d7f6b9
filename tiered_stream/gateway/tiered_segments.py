"""What the gateway knows of the tiered segments, by its own login; given out to whom a broker has authorized."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.errors import DataLossError, UnknownTopicError
from tiered_stream.locate.metadata_topic.metadata_topic_locator import MetadataTopicLocator
from tiered_stream.locate.segment_metadata_locator import Visible
from tiered_stream.model import OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_TOPICS_SECONDS = 1.0  # the least time between two looks at all topics, for ids that are not known


class TieredSegments:
    """What the locator `metadata-topic` knows, for many threads and for topics that come and go.

    Args:
        fresh_seconds: for so long, what is known of a partition is taken to be so. What was tiered since then is read
            from the brokers.
    """

    def __init__(
        self, client: BrokerClient, fetcher: RemoteStorageFetcher, cache_bytes: int, fresh_seconds: float
    ) -> None:
        self._client = client
        self._locator = MetadataTopicLocator(client, fetcher, IsolationLevel.READ_COMMITTED, cache_bytes)
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._seen: dict[TopicPartition, tuple[float, Visible]] = {}
        self._names: dict[UUID, str] = {}
        self._names_at = float("-inf")
        self._log_ends = BrokerOffsetReader(client, IsolationLevel.READ_UNCOMMITTED)

    def follow_all(self) -> None:
        """Read what the metadata topic says of every topic, so that the first requests need not wait for it.

        Raises:
            StorageError, BrokerError, CorruptDataError: as `visible`.
        """
        topics = [topic for topic in self._client.metadata().items() if not topic[1].internal]
        self.visible(
            {TopicPartition(name, number): topic.topic_id for name, topic in topics for number in topic.partitions}
        )

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """The names of those of the topics that exist.

        Raises:
            BrokerError: the brokers cannot be asked.
        """
        with self._lock:
            unknown = not self._names.keys() >= set(topic_ids)
            if unknown and time.monotonic() - self._names_at > _TOPICS_SECONDS:
                self._names_at = time.monotonic()
                self._names = {found.topic_id: name for name, found in self._client.metadata().items()}
            return {topic_id: self._names[topic_id] for topic_id in topic_ids if topic_id in self._names}

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks of now.

        Raises:
            BrokerError: as `BrokerOffsetReader.latest`.
        """
        return self._log_ends.latest(partitions)

    def local_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Where the leaders' own disks begin.

        Raises:
            BrokerError: as `BrokerOffsetReader.earliest_local`.
        """
        return self._log_ends.earliest_local(partitions)

    def visible(self, partitions: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, Visible]:
        """The segments that count, sorted and disjoint, by partition; none where the topic now has another id.

        Raises:
            StorageError, BrokerError, CorruptDataError: the segments' metadata cannot be had.
        """
        with self._lock:
            oldest = time.monotonic() - self._fresh_seconds
            # An id that we do not know the topic by is of a topic that was made again: the broker knows it.
            stale = [
                each
                for each, topic_id in partitions.items()
                if self._seen.get(each, (float("-inf"), ()))[0] < oldest
                or self._locator.topic_id(each.topic) != topic_id
            ]
            if stale:
                self._refresh(stale)
            return {
                partition: self._seen[partition][1]
                for partition, topic_id in partitions.items()
                if partition in self._seen and self._locator.topic_id(partition.topic) == topic_id
            }

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
        self._locator.close()

    def _refresh(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            found = self._locator.visible_of(partitions)
        except UnknownTopicError:
            topics = self._client.metadata()
            there = [each for each in partitions if _exists(topics, each)]
            for gone in set(partitions) - set(there):
                self._seen.pop(gone, None)
            found, partitions = self._locator.visible_of(there), there
        now = time.monotonic()
        self._seen.update({partition: (now, found.get(partition, ())) for partition in partitions})


def _exists(topics: Mapping[str, TopicMetadata], partition: TopicPartition) -> bool:
    return partition.topic in topics and partition.partition in topics[partition.topic].partitions
