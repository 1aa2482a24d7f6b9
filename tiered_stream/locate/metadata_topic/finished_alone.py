"""Segments of which the metadata topic tells no more than that their copy is finished.

With KIP-1266 the topic is compacted, and an update with a segment's key may be all that is left of the segment. It does
not say where the segment begins, how large it is, and in which leader epochs it was written. Where the storage keeps
that itself (Aiven's manifests do), one request for each segment tells it, once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from uuid import UUID

from tiered_stream.errors import CorruptDataError, StorageError, StorageObjectNotFoundError, UnsupportedDataError
from tiered_stream.locate.metadata_topic.remote_log_metadata import TopicIdPartition
from tiered_stream.locate.metadata_topic.segment_table import FinishedAlone
from tiered_stream.model import RemoteLogSegment, TopicPartition
from tiered_stream.storage.fetcher import RemoteStorageFetcher

log = logging.getLogger(__name__)

_SHOWN = 3
"""End offsets in a warning."""


class FinishedAloneSegments:
    """Completes them, and says of which that failed. Serves many threads, but one at a time for the same partition.

    With `falls_back`, what the storage does not tell is left to the brokers.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, executor: Executor, *, falls_back: bool) -> None:
        self._fetcher = fetcher
        self._executor = executor
        self._falls_back = falls_back
        self._told: dict[tuple[UUID, int], RemoteLogSegment | None] = {}
        self._unknown: dict[TopicPartition, frozenset[UUID]] = {}

    def complete(
        self, alone: Mapping[TopicIdPartition, Sequence[FinishedAlone]], starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, list[RemoteLogSegment]]:
        """By partition, the segments that are known now.

        Args:
            starts: where the logs begin of the partitions whose first segment is among them.

        Raises:
            StorageError: the storage cannot be asked, and nothing is left to the brokers.
        """
        named = [
            (each.topic_partition, finished, _named(each, finished, starts))
            for each, of in alone.items()
            for finished in of
        ]
        found: dict[TopicPartition, list[RemoteLogSegment]] = {each.topic_partition: [] for each in alone}
        unknown: dict[TopicPartition, list[FinishedAlone]] = {each.topic_partition: [] for each in alone}
        told = self._executor.map(lambda each: self._ask(each[2], each[1].update.end_offset), named)
        for (partition, finished, _), segment in zip(named, told, strict=True):
            if segment is None:
                unknown[partition].append(finished)
            else:
                found[partition].append(segment)
        for partition, of in unknown.items():
            self._warn(partition, of)
        return found

    def _ask(self, named: RemoteLogSegment | None, end_offset: int | None) -> RemoteLogSegment | None:
        if named is None:
            return None
        key = named.segment_id, named.base_offset
        if key not in self._told:
            try:
                told = self._fetcher.segment_metadata(named)
                self._told[key] = told if told and told.end_offset == end_offset else None
            except (StorageObjectNotFoundError, CorruptDataError, UnsupportedDataError) as error:
                log.warning("the storage does not tell what a segment is: %s", error)
                self._told[key] = None
            except StorageError as error:  # it may tell later
                if not self._falls_back:
                    raise
                log.warning("the storage does not tell what a segment is: %s", error)
                return None
        return self._told[key]

    def _warn(self, partition: TopicPartition, unknown: Sequence[FinishedAlone]) -> None:
        """Once, as long as they are the same."""
        ids = frozenset(each.update.segment_id for each in unknown)
        if ids != self._unknown.get(partition, frozenset()):
            ends = [str(each.update.end_offset) for each in unknown if each.update.end_offset is not None][:_SHOWN]
            log.warning(
                "%s: %d segment%s read from the broker: the metadata topic says that the copy is finished, but not "
                "where it begins%s",
                partition, len(ids), "s are" if len(ids) > 1 else " is",
                f" (end offsets {', '.join(ends)}{', ...' if len(ends) < len(ids) else ''})" if ends else "",
            )  # fmt: skip
        self._unknown[partition] = ids


def _named(
    partition: TopicIdPartition, finished: FinishedAlone, starts: Mapping[TopicPartition, int]
) -> RemoteLogSegment | None:
    """What names the segment's objects; None: where it begins is not known."""
    update, before = finished.update, finished.end_before
    start = starts.get(partition.topic_partition) if before is None else before + 1
    if update.end_offset is None or start is None or start > update.end_offset:
        return None
    return RemoteLogSegment(
        partition.topic_partition, partition.topic_id, update.segment_id, start, update.end_offset, 0,
        custom_metadata=update.custom_metadata,
    )  # fmt: skip
