"""A user's own fetcher whose storage goes away in the middle of a segment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.tier.fetchers import PassingFetcher
from tiered_stream.errors import StorageAccessError
from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher


class FailingFetcher(PassingFetcher):
    """Reads the folder `test.tier`, but no byte from `test.fails.at` on (`BASE_OFFSET:POSITION` of a segment)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(LocalLayoutFetcher(FileStore(Path(properties["test.tier"]))))
        base_offset, _, position = properties["test.fails.at"].partition(":")
        self._fails_at = int(base_offset), int(position)

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        if (segment.base_offset, end) > self._fails_at:
            raise StorageAccessError(f"no access to the segment from offset {segment.base_offset} any more")
        return super().fetch_log_segment(segment, start, end)
