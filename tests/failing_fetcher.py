"""A user's own fetcher whose storage goes away in the middle of a segment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from tiered_stream.errors import StorageAccessError
from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher


class FailingFetcher(RemoteStorageFetcher):
    """Reads the folder `test.tier`, but no byte from `test.fails.at` on (`BASE_OFFSET:POSITION` of a segment)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._fetcher = LocalLayoutFetcher(FileStore(Path(properties["test.tier"])))
        base_offset, _, position = properties["test.fails.at"].partition(":")
        self._fails_at = int(base_offset), int(position)

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        if (segment.base_offset, end) > self._fails_at:
            raise StorageAccessError(f"no access to the segment from offset {segment.base_offset} any more")
        return self._fetcher.fetch_log_segment(segment, start, end)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return self._fetcher.fetch_indexes(segment, types)
