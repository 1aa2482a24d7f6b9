"""A fetcher of a user's own that makes a task's first attempt wait until Spark has started a speculative one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pyspark import TaskContext

from tests.delta.archive import options
from tests.tier.fetchers import PassingFetcher
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.parsing import parse_options
from tiered_stream.storage.open_fetcher import open_fetcher

MARKS = "kafka.tests.marks"
"""The option that names a folder with an empty file for each attempt: `TASK-ATTEMPT`, both counted from 0."""
_LONGEST = 60.0


class SlowFetcher(PassingFetcher):
    """The golden archive's, but for the wait."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(open_fetcher(parse_options(options(), streaming=False).storage))
        self._marks = Path(properties[MARKS.removeprefix("kafka.")])

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        context = TaskContext.get()
        if context is not None:
            self._wait(context.partitionId(), context.attemptNumber())
        return super().fetch_log_segment(segment, start, end)

    def _wait(self, task: int, attempt: int) -> None:
        (self._marks / f"{task}-{attempt}").touch()
        deadline = time.monotonic() + _LONGEST
        while attempt == 0 and not (self._marks / f"{task}-1").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
