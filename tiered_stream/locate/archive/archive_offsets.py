"""Offset reader for an archive: it finds the offsets at which partitions begin and end, without a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.errors import UnknownTopicError
from tiered_stream.locate.archive.archived_partitions import MANIFEST_REQUESTS_IN_FLIGHT, Archive, ArchivedPartition
from tiered_stream.locate.offset_index import search_start
from tiered_stream.locate.visible_segments import VisibleSegment
from tiered_stream.model import ByteRange, PartitionOffsets, TopicDescription, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.types import LONG_MAX, LONG_MIN
from tiered_stream.records.decoder import RecordBatchDecoder
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

_MAX_SHOWN_TOPICS = 10
_REQUEST_BYTES = 1 << 20  # usually enough: the record is in the first index interval (4 KiB)


@dataclass(eq=False)
class ArchiveOffsetReader(OffsetReader):
    """Reader of partitions' offsets from an archive, which is a bucket that is read without its Kafka cluster.

    Under read_uncommitted, a partition ends at the end of its last segment. Under read_committed, it ends at its last
    stable offset in the archive. A partition without segments counts as missing. `close` closes the archive, but not
    the fetcher.
    """

    _archive: Archive
    _fetcher: RemoteStorageFetcher
    _isolation: IsolationLevel
    _limits: Limits = DEFAULT_LIMITS
    _warned_of_no_topic: bool = False

    def partitions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        described = self._archive.describe(topics)
        missing = sorted(set(topics) - described.keys())
        if missing:
            self._archive.check_prefix()
            why = self._archive.why_empty() or (
                "correct the subscription, remote.storage.uri, the plugin's key.prefix, or remote.topic.id"
            )
            raise UnknownTopicError(f"the archive has no segment of the topics {', '.join(map(repr, missing))}: {why}")
        return described

    def matching(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """Return by name the id and partitions of the topics for whose names `wanted` returns True.

        Log a warning once if there is no such topic.

        Raises:
            ConfigurationError: the archive is empty, or the configured key prefix is only the beginning of the real key
                prefix.
            StorageError: the store cannot be listed, or a manifest cannot be read from it.
        """
        topics = self._archive.topic_names()
        matching = {topic for topic in topics if wanted(topic)}
        if matching:
            return self.partitions(matching)
        self._archive.check_prefix()
        if not self._warned_of_no_topic:  # a stream asks for every micro-batch
            self._warned_of_no_topic = True
            shown = ", ".join(sorted(topics)[:_MAX_SHOWN_TOPICS]) + (", …" if len(topics) > _MAX_SHOWN_TOPICS else "")
            log.warning("no topic in the archive has the pattern of subscribePattern; its topics are %s", shown)
        return {}

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: archived.log_start_offset for partition, archived in self._archived(partitions).items()}

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """List the archive again, and return by partition the partition's end offset (exclusive)."""
        self._archive.refresh({partition.topic for partition in partitions})
        return {partition: self._end(archived) for partition, archived in self._archived(partitions).items()}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return by partition the end offset (exclusive) of its last segment, as the archive was last listed."""
        return {partition: archived.end_offset for partition, archived in self._archived(partitions).items()}

    def final_ends(self, watermarks: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the result of `latest`, because no broker may be left that could end an open transaction."""
        return self.latest(watermarks)

    def for_timestamps(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        archived = self._archived(timestamps)
        with ThreadPoolExecutor(MANIFEST_REQUESTS_IN_FLIGHT, thread_name_prefix="timestamps") as executor:
            offsets = executor.map(self._for_timestamp, archived.values(), timestamps.values())
            return dict(zip(archived, offsets, strict=True))

    def close(self) -> None:
        self._archive.close()

    def _for_timestamp(self, archived: ArchivedPartition, timestamp: int) -> int | None:
        """Return the offset of the partition's first record whose timestamp is at or after `timestamp` (ms).

        None: no record before the partition's end has such a timestamp. For the timestamps EARLIEST and LATEST, the
        result is the partition's start and end.
        """
        if timestamp == EARLIEST:
            return archived.log_start_offset
        if timestamp == LATEST:
            return self._end(archived)
        for part in archived.visible:
            if 0 <= part.segment.max_timestamp < timestamp:
                continue
            offset = _first_offset_at(self._fetcher, part, timestamp, self._limits)
            if offset is not None:
                return offset if offset < self._end(archived) else None
        return None

    def _end(self, archived: ArchivedPartition) -> int:
        committed = self._isolation is IsolationLevel.READ_COMMITTED
        return archived.last_stable_offset if committed else archived.end_offset

    def _archived(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ArchivedPartition]:
        """Return each partition's contents (`ArchivedPartition`), as the archive was last listed.

        Raises:
            UnknownTopicError: a partition has no segment in the archive.
        """
        archived = self._archive.partitions(partitions)
        missing = sorted(str(partition) for partition in partitions if partition not in archived)
        if missing:
            raise UnknownTopicError(f"the archive has no segment of the partitions {', '.join(missing)}")
        return {partition: archived[partition] for partition in partitions}


def _first_offset_at(fetcher: RemoteStorageFetcher, part: VisibleSegment, timestamp: int, limits: Limits) -> int | None:
    """Return the offset of the first record in `part.offsets` whose timestamp is at or after `timestamp` (ms).

    None: there is no such record. `part` is a segment with the offsets that belong to the log. Records of aborted and
    open transactions count, but transaction markers do not (Kafka: `LogSegment.findOffsetByTimestamp`).
    """
    segment, offsets = part.segment, part.offsets
    start = search_start(fetcher, part, timestamp)
    late_enough = max(LONG_MIN, min(timestamp * 1000, LONG_MAX))
    decoder = RecordBatchDecoder(
        segment.topic_partition.topic, segment.topic_partition.partition, offsets.start, offsets.end, limits=limits
    )
    for wanted in fetcher.request_ranges(segment, ByteRange(start, segment.size), _REQUEST_BYTES):
        for batch in decoder.feed(fetcher.fetch_log_segment(segment, wanted.start, wanted.end)):
            times = batch.column("timestamp").cast(pa.int64())  # microseconds
            first = pc.index(pc.greater_equal(times, late_enough), True).as_py()
            if first >= 0:
                offset: int = batch.column("offset")[first].as_py()
                return offset
    return None
