"""Fetcher for the layout of Kafka's `LocalTieredStorage`, the reference RemoteStorageManager of KIP-405.

    TOPIC-PARTITION-TOPICID/OFFSET20-SEGMENTID.log                       the segment
    TOPIC-PARTITION-TOPICID/OFFSET20-SEGMENTID.index .timeindex .txnindex .snapshot .leader_epoch_checkpoint

Ids are in Kafka's text form, OFFSET20 is the base offset in 20 digits. The store's root is the folder that holds these
folders (`kafka-tiered-storage`). The objects are exactly the broker's files, without compression or encryption by the
plugin.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from tiered_stream.errors import StorageObjectNotFoundError
from tiered_stream.model import ByteRange, RemoteLogSegment, uuid_to_text
from tiered_stream.storage.fetcher import SNAPSHOTS, IndexType, StoreFetcher

_SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
}
_OPTIONAL = frozenset((IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT))


class LocalLayoutFetcher(StoreFetcher):
    """Fetcher of segments and indexes that `LocalTieredStorage` wrote; each segment and each index is an object."""

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        byte_range = ByteRange(start, segment.size if end == -1 else end)
        return self.store.get(object_key(segment, ".log"), byte_range)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        if segment.transaction_index_empty:
            types = set(types) - {IndexType.TRANSACTION}
        indexes = {index_type: self._index(segment, index_type) for index_type in types}
        return {index_type: data for index_type, data in indexes.items() if data is not None}

    def _index(self, segment: RemoteLogSegment, index_type: IndexType) -> bytes | None:
        """Return one index of the segment, or None if the segment does not have this index.

        If the result were None for a transaction index that exists, aborted records would be read as committed ones.
        But storage may respond 404 for a moment, or a deletion of the segment may have begun. So a missing index is
        requested again after one byte of the segment's log has been fetched, which proves that the segment exists.
        """
        key = object_key(segment, _SUFFIXES[index_type])
        limit = self.limits.snapshot if index_type in SNAPSHOTS else self.limits.index
        try:
            return self.store.get(key, limit)
        except StorageObjectNotFoundError:
            if index_type not in _OPTIONAL:
                raise
        self.fetch_log_segment(segment, 0, 1)
        with suppress(StorageObjectNotFoundError):
            return self.store.get(key, limit)
        return None

    def key(self, segment: RemoteLogSegment, suffix: str) -> str:
        return object_key(segment, suffix)


def object_key(segment: RemoteLogSegment, suffix: str) -> str:
    """Return the key, below the store's root, of the segment's object with `suffix` (`.log`, `.index`, ...)."""
    folder = f"{segment.topic_partition}-{uuid_to_text(segment.topic_id)}"
    return f"{folder}/{segment.base_offset:020d}-{uuid_to_text(segment.segment_id)}{suffix}"
