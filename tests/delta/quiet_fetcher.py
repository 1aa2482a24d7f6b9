"""A fetcher of a user's own that lets a task be silent for longer than Spark's limit for idle workers."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from pyspark import TaskContext

from tests.delta.archive import options
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.options.parsing import parse_options
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import open_fetcher

IDLE_SECONDS = 1
"""The limit for which `SILENT_SECONDS` are too many."""
SILENT_SECONDS = 3


class QuietFetcher(RemoteStorageFetcher):
    """The golden archive's, but for the silence of tasks."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._fetcher = open_fetcher(parse_options(options(), streaming=False).storage)

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        if TaskContext.get() is not None:
            time.sleep(SILENT_SECONDS)
        return self._fetcher.fetch_log_segment(segment, start, end)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return self._fetcher.fetch_indexes(segment, types)

    def request_ranges(self, segment: RemoteLogSegment, wanted: ByteRange, request_bytes: int) -> list[ByteRange]:
        return list(self._fetcher.request_ranges(segment, wanted, request_bytes))
