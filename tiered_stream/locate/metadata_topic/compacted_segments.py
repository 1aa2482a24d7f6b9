"""Completion, from the storage, of segments for which `__remote_log_metadata` only has the record that ends the copy.

With KIP-1266 the topic is compacted, and one update with a segment's key may be the only record that is left of the
segment. The update says that the copy is finished, but lacks the segment's start, size and leader epochs. If the
storage has these fields (Aiven's manifests do), they are read once, by one request for each segment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from uuid import UUID

from tiered_stream.errors import CorruptDataError, StorageError, StorageObjectNotFoundError, UnsupportedDataError
from tiered_stream.locate.storage_failures import UnreachableCount
from tiered_stream.model import RemoteLogSegment, TopicPartition
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

_MAX_SHOWN_OFFSETS = 3
"""Maximum number of end offsets in a warning."""


class CompactedSegments:
    """Reader that completes, from the storage, segments of which `__remote_log_metadata` has only an update.

    It logs for each partition the number of segments whose metadata the storage does not have. Many threads may use it,
    but only one thread at a time per partition.

    Args:
        executor: threads that send the requests.
        falls_back: the brokers serve a segment if the storage fails to return its metadata; if false, the error is
            raised.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, executor: Executor, *, falls_back: bool) -> None:
        self._fetcher = fetcher
        self._executor = executor
        self._falls_back = falls_back
        self._completed: dict[TopicPartition, dict[UUID, tuple[int, RemoteLogSegment | None]]] = {}
        """By partition and segment id, the start offset of the segment and the completed segment."""
        self._unknown: dict[TopicPartition, frozenset[UUID]] = {}

    def complete(
        self, alone: Mapping[TopicPartition, Sequence[RemoteLogSegment]], starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, list[RemoteLogSegment]]:
        """Return by partition the completed segments; segments whose metadata the storage does not have are left out.

        Completed segments of these partitions that are not in `alone` any more are removed from the cache.

        Args:
            alone: segments of which only an update is known, by partition (`SegmentTable.lone_updates`).
            starts: log start offsets by partition; a segment starts there if no segment before it is known.

        Raises:
            StorageError: the storage fails, and `falls_back` is false.
        """
        for partition, of_partition in alone.items():
            known, ids = self._completed.get(partition, {}), {copy.segment_id for copy in of_partition}
            self._completed[partition] = {segment_id: known[segment_id] for segment_id in known.keys() & ids}
        copies = [segment for segments in alone.values() for segment in segments]
        unreachable = UnreachableCount()
        completed = self._executor.map(lambda copy: self._complete(copy, starts, unreachable), copies)
        segments: dict[TopicPartition, list[RemoteLogSegment]] = {partition: [] for partition in alone}
        unknown: dict[TopicPartition, list[RemoteLogSegment]] = {partition: [] for partition in alone}
        for copy, segment in zip(copies, completed, strict=True):
            if segment is None:
                unknown[copy.topic_partition].append(copy)
            else:
                segments[copy.topic_partition].append(segment)
        for partition, of_partition in unknown.items():
            self._warn(partition, of_partition)
        return segments

    def _complete(
        self, copy: RemoteLogSegment, starts: Mapping[TopicPartition, int], unreachable: UnreachableCount
    ) -> RemoteLogSegment | None:
        """Return the segment `copy` with its metadata from the storage, or None. The result is cached.

        Return None if the storage has no valid metadata of the segment. Also return None if the keys of its objects are
        unknown, because its start or end offset is unknown, or because the start lies after the end. With `falls_back`,
        also return None if the storage fails, or if `unreachable` has too many failures. A None because of such a
        failure is not cached.

        Raises:
            StorageError: the storage fails, and `falls_back` is false.
        """
        start = starts.get(copy.topic_partition) if copy.base_offset < 0 else copy.base_offset
        if start is None or start > copy.end_offset:
            return None
        known = self._completed[copy.topic_partition]
        if copy.segment_id not in known or known[copy.segment_id][0] != start:
            if unreachable.is_full:
                return None
            try:
                segment = self._fetcher.segment_metadata(replace(copy, base_offset=start))
            except (StorageError, CorruptDataError, UnsupportedDataError) as error:
                # A storage that fails may give the metadata later.
                passing = isinstance(error, StorageError) and not isinstance(error, StorageObjectNotFoundError)
                if passing and not self._falls_back:
                    raise
                unreachable.add(error)
                log.warning("the storage does not have the metadata of a segment: %s", error)
                if passing:
                    return None
                segment = None
            completed = segment if segment and segment.end_offset == copy.end_offset else None
            known[copy.segment_id] = start, completed
        return known[copy.segment_id][1]

    def _warn(self, partition: TopicPartition, unknown: Sequence[RemoteLogSegment]) -> None:
        """Log a warning that brokers serve the segments `unknown`, unless the last call had the same segments."""
        ids = frozenset(segment.segment_id for segment in unknown)
        if ids != self._unknown.get(partition, frozenset()):
            ends = [str(segment.end_offset) for segment in unknown if segment.end_offset >= 0][:_MAX_SHOWN_OFFSETS]
            log.warning(
                "%s: %d segment%s read from the broker: the metadata topic says that the copy is finished, but not "
                "where it begins%s",
                partition, len(ids), "s are" if len(ids) > 1 else " is",
                f" (end offsets {', '.join(ends)}{', ...' if len(ends) < len(ids) else ''})" if ends else "",
            )  # fmt: skip
        self._unknown[partition] = ids
