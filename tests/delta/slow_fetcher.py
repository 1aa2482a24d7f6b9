"""A fetcher of a user's own that makes a task's first attempt wait until Spark has started a speculative one."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

from pyspark import TaskContext

from tests.delta.archive import options
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.options.parsing import parse_options
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import open_fetcher

MARKS = "kafka.tests.marks"
"""The option that names a folder with an empty file for each attempt: `TASK-ATTEMPT`, both counted from 0."""
_LONGEST = 60.0


class SlowFetcher(RemoteStorageFetcher):
    """The golden archive's, but for the wait."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._fetcher = open_fetcher(parse_options(options(), streaming=False).storage)
        self._marks = Path(properties[MARKS.removeprefix("kafka.")])

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        context = TaskContext.get()
        if context is not None:
            self._wait(context.partitionId(), context.attemptNumber())
        return self._fetcher.fetch_log_segment(segment, start, end)

    def _wait(self, task: int, attempt: int) -> None:
        (self._marks / f"{task}-{attempt}").touch()
        deadline = time.monotonic() + _LONGEST
        while attempt == 0 and not (self._marks / f"{task}-1").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return self._fetcher.fetch_indexes(segment, types)

    def request_ranges(self, segment: RemoteLogSegment, wanted: ByteRange, request_bytes: int) -> list[ByteRange]:
        return list(self._fetcher.request_ranges(segment, wanted, request_bytes))
