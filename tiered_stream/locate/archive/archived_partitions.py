"""Contents of an archive: the segments that manifests in a bucket of Aiven's plugin describe, and the segments' logs.

A copy that Kafka forgot (the broker died before it recorded the end of the copy) looks like any other copy. But it does
no harm: its records are records of the log, or they are not read, because their leader epochs are not in the log.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from uuid import UUID

from tiered_stream.broker.leader_epochs import Lineage
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.locate.archive.archive_listing import MANIFEST, CopyListing, SegmentCopy, Suffixes, UnreadPlaces
from tiered_stream.locate.index_files import IndexCache, open_transactions, parse_leader_epoch_checkpoint
from tiered_stream.locate.visible_segments import VisibleSegments, lineage_of, visible_segments
from tiered_stream.model import (
    LeaderEpoch,
    OffsetRange,
    RemoteLogSegment,
    TopicDescription,
    TopicPartition,
    uuid_to_text,
)
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import open_fetcher
from tiered_stream.storage.open_store import open_store
from tiered_stream.storage.segment_places import configured_place, segment_places

log = logging.getLogger(__name__)

MANIFEST_REQUESTS_IN_FLIGHT = 32


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """Partition in the archive, as its segments show it.

    Args:
        segments: all segments of the partition.
        lineage: end offset (exclusive) of each leader epoch of the partition's log, by epoch.
        visible: the segments whose records belong to the log by `lineage`.
        log_start_offset: the first offset in `visible`.
        end_offset: the offset after the last offset in `visible`.
        last_stable_offset: the lowest first offset of the transactions that are open at the archive's end; `end_offset`
            if no transaction is open. A transaction that is open there counts as open, even if it ended in the cluster.
    """

    segments: tuple[RemoteLogSegment, ...]
    lineage: Lineage
    visible: VisibleSegments
    log_start_offset: int
    end_offset: int
    last_stable_offset: int


_Segments = tuple[RemoteLogSegment, ...]


@dataclass(frozen=True)
class _Topic:
    """Topic in the archive: its segments, and the copies of segments that lack objects.

    `segments` has the segment of each finished copy, which lacks no object. `incomplete` has the suffixes of the
    missing objects, by copy.
    """

    topic_id: UUID
    segments: Mapping[SegmentCopy, RemoteLogSegment]
    incomplete: Mapping[SegmentCopy, Suffixes]

    @cached_property
    def partitions(self) -> dict[int, _Segments]:
        """Segments by partition number."""
        partitions: dict[int, list[RemoteLogSegment]] = defaultdict(list)
        for segment in self.segments.values():
            partitions[segment.topic_partition.partition].append(segment)
        return {number: tuple(segments) for number, segments in partitions.items()}


class Archive:
    """Topics in an archive, which is a bucket of tiered segments that is read without its Kafka cluster.

    A topic's objects are listed when the topic is asked for and no segment of it is known, and again by `refresh`.
    `close` does not close the fetcher.

    Args:
        listing: lists the copies of segments in the bucket.
        unread: finds segments that `listing` does not list, for errors and warnings.
        topic_ids: by topic name, the id of the topic to read, if several topics had the name one after the other.
    """

    def __init__(
        self, listing: CopyListing, unread: UnreadPlaces, fetcher: RemoteStorageFetcher, topic_ids: Mapping[str, UUID]
    ) -> None:
        self._listing = listing
        self._unread = unread
        self._topic_ids = topic_ids
        self._search: Future[None] | None = None
        """Future of a thread that looks for segments of the read topics below other key prefixes; None: not started."""
        self._warned_of: set[SegmentCopy] = set()
        self._indexes = IndexCache(fetcher)
        self._executor = ThreadPoolExecutor(MANIFEST_REQUESTS_IN_FLIGHT, thread_name_prefix="archive")
        self._topics: dict[str, _Topic] = {}
        self._known: dict[TopicPartition, tuple[_Segments, ArchivedPartition]] = {}

    def topic_names(self) -> frozenset[str]:
        """List the whole archive, and return the names of all topics that have a finished copy of a segment.

        Raises:
            StorageError: the store cannot be listed.
            ConfigurationError: the archive has no finished copy at all.
        """
        names = frozenset(copy.topic for copy, missing in self._listing.copies() if not missing)
        if not names:
            raise ConfigurationError(self._unread.why_empty())
        return names

    def why_empty(self) -> str | None:
        """Return an error message if the archive has no manifest, else None.

        The message names settings with which segments in the storage can be read, if there are any.

        Raises:
            StorageError: the store cannot be listed.
        """
        return self._unread.why_empty() if self._listing.any_manifest() is None else None

    def check_prefix(self) -> None:
        """Check by one manifest that the configured key prefix is not only the beginning of the real key prefix.

        With only the beginning, the rest of the real prefix would look like a part of topic names. An archive without
        manifests is not checked.

        Raises:
            ConfigurationError: the configured key prefix is only the beginning of the real key prefix.
            StorageError: the store cannot be listed, or the manifest cannot be read from it.
            CorruptDataError, UnsupportedDataError: the manifest is malformed or of an unknown version.
        """
        copy = self._listing.any_manifest()
        if copy is not None:
            self._listing.read_manifest(copy)

    def refresh(self, topics: Collection[str]) -> None:
        """List the objects of `topics` again, so that new segments are known and deleted segments are forgotten.

        Raises:
            StorageError: the store cannot be listed, or a manifest cannot be read from it.
            CorruptDataError, UnsupportedDataError: a manifest is malformed or of an unknown version; the message names
                the manifest.
            ConfigurationError: several topics had one name, and no topic id is configured.
        """
        to_read: dict[str, tuple[UUID, dict[SegmentCopy, Suffixes]]] = {}
        for topic, copies in self._listing.of_topics(topics).items():
            self._warn_of_missing(copies)
            topic_id = self._topic_id(topic, {copy.topic_id for copy, missing in copies.items() if not missing})
            if topic_id is None:
                self._topics.pop(topic, None)
            else:
                of_topic = {copy: missing for copy, missing in copies.items() if copy.topic_id == topic_id}
                to_read[topic] = topic_id, of_topic
        listed = [self._topics[topic] for topic in to_read if topic in self._topics]
        known = {copy: segment for topic in listed for copy, segment in topic.segments.items()}
        finished = [copy for _, copies in to_read.values() for copy, missing in copies.items() if not missing]
        unread = [copy for copy in finished if copy not in known]
        read = zip(unread, self._executor.map(self._listing.read_manifest, unread), strict=True)
        known |= {copy: segment for copy, segment in read if segment}
        for name, (topic_id, copies) in to_read.items():
            segments = {copy: known[copy] for copy, missing in copies.items() if not missing and copy in known}
            incomplete = {copy: missing for copy, missing in copies.items() if missing}
            self._topics[name] = _Topic(topic_id, segments, incomplete)

    def describe(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return, by topic, the topic's id and its partitions that have segments.

        Topics that are not in the archive are left out. The errors are described at `refresh`.
        """
        self._list_new(topics)
        return {
            topic: TopicDescription(topic, known.topic_id, tuple(sorted(known.partitions)))
            for topic in topics
            if (known := self._topics.get(topic))
        }

    def partitions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ArchivedPartition]:
        """Return the contents of `partitions`, as they were last listed; partitions without segments are left out.

        Raises:
            StorageError: the store cannot be listed, or a manifest or an index cannot be read from it.
            CorruptDataError, UnsupportedDataError: a manifest or an index of a partition's newest segment is malformed.
            ConfigurationError: several topics had one name, and no topic id is configured.
        """
        self._list_new({partition.topic for partition in partitions})
        segments = {
            partition: topic.partitions[partition.partition]
            for partition in partitions
            if (topic := self._topics.get(partition.topic)) and partition.partition in topic.partitions
        }
        new = {
            partition: listed
            for partition, listed in segments.items()
            if partition not in self._known or self._known[partition][0] != listed
        }
        for partition, archived in zip(new, self._executor.map(self._archived, new.values()), strict=True):
            self._known[partition] = new[partition], archived
        if new and self._search is None:
            self._search = self._executor.submit(self._unread.warn_of_topics, [listed[0] for listed in new.values()])
        return {partition: self._known[partition][1] for partition in segments}

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> list[str]:
        """Return the full names of objects that are missing in copies of the partition's segments.

        Only segments with a base offset in `offsets` are considered. The archive is not listed again.
        """
        topic = self._topics.get(partition.topic)
        return [
            self._listing.name(copy, suffix)
            for copy, missing in (topic.incomplete.items() if topic else ())
            if copy.partition == partition and copy.base_offset in offsets
            for suffix in sorted(missing)
        ]

    def open_transactions(self, segment: RemoteLogSegment) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of each transaction that is open at the segment's end."""
        return self._indexes.parsed(segment, IndexType.PRODUCER_SNAPSHOT, open_transactions)

    def close(self) -> None:
        """Cancel requests that have not begun, and wait for the threads to end."""
        if self._search is not None:
            wait([self._search])
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _list_new(self, topics: Collection[str]) -> None:
        """List the objects of the topics in `topics` of which no segment is known, all together."""
        self.refresh([topic for topic in topics if topic not in self._topics or not self._topics[topic].segments])

    def _warn_of_missing(self, copies: Mapping[SegmentCopy, Suffixes]) -> None:
        """Log a warning, once for each copy that has a manifest but lacks another object.

        A copy without a manifest may still be in progress.
        """
        for copy, missing in copies.items():
            if missing and MANIFEST not in missing and copy not in self._warned_of:
                self._warned_of.add(copy)
                names = " and ".join(self._listing.name(copy, suffix) for suffix in sorted(missing))
                log.warning(
                    "%s: a segment is not read, %s is missing, and its manifest is there", copy.partition, names
                )

    def _topic_id(self, topic: str, listed_ids: set[UUID]) -> UUID | None:
        """Return the id of the topic to read: the configured id, or if none is configured, the only id in `listed_ids`.

        Return None if the configured id is not in `listed_ids`. Also return None if no id is configured and
        `listed_ids` is empty.

        Raises:
            ConfigurationError: no id is configured, and `listed_ids` has several ids.
        """
        if topic in self._topic_ids:
            return self._topic_ids[topic] if self._topic_ids[topic] in listed_ids else None
        if len(listed_ids) > 1:
            ids = ", ".join(sorted(uuid_to_text(topic_id) for topic_id in listed_ids))
            raise ConfigurationError(
                f"the archive has several topics named {topic!r}, with the ids {ids}: say in the option "
                f'remote.topic.id which one to read, as {{"{topic}":"<id>"}}'
            )
        return next(iter(listed_ids), None)

    def _archived(self, segments: _Segments) -> ArchivedPartition:
        """Return the partition that consists of `segments`. Index files of at most two segments are requested.

        The leader epochs come from the newest segment's leader epoch checkpoint. Open transactions come from the
        producer snapshot of the last segment in the log.

        Raises:
            StorageError: an index cannot be read from the store.
            CorruptDataError, UnsupportedDataError: an index is malformed or of an unknown version.
        """
        newest = max(
            segments, key=lambda segment: (segment.leader_epochs[-1].epoch, segment.end_offset, segment.segment_id)
        )
        checkpoint = self._indexes.parsed(newest, IndexType.LEADER_EPOCH, parse_leader_epoch_checkpoint)
        epochs = [LeaderEpoch(epoch, start_offset) for epoch, start_offset in checkpoint]
        lineage = lineage_of(epochs)
        visible = visible_segments(segments, lineage, epochs[0].start_offset if epochs else 0)
        if not visible:
            raise CorruptDataError(f"{newest}: its leader epoch checkpoint lacks its own leader epoch")
        start, end = visible[0].offsets.start, visible[-1].offsets.end
        open_from = [first for _, first in self.open_transactions(visible[-1].segment)]
        return ArchivedPartition(segments, lineage, visible, start, end, max(start, min([end, *open_from])))


def open_archive(storage: StorageOptions, topic_ids: Mapping[str, UUID]) -> Archive:
    """Open the archive that the options `storage` name.

    `topic_ids` has the ids of the topics to read, by topic name, if several topics had the name one after the other.

    Raises:
        ConfigurationError: the configured layout has no manifests, or the settings of the storage are wrong.
    """
    if storage.layout != StorageLayout.AIVEN:
        raise ConfigurationError(
            f"remote.log.locator=archive does not go with remote.storage.layout={storage.layout}: only the manifests "
            "of the layout aiven say what a bucket holds"
        )
    store, configured = open_store(storage), configured_place(storage)
    prefixes = tuple(dict.fromkeys((configured.key_prefix, *storage.key_prefixes)))
    listing = CopyListing(store, prefixes, storage.limits.manifest, configured.plugin_prefix)
    unread = UnreadPlaces(store, configured, prefixes, partial(segment_places, storage))
    return Archive(listing, unread, open_fetcher(storage), topic_ids)
