"""Fetchers of a user's own that read the golden archive, and let tasks wait."""

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

IDLE_SECONDS, SILENT_SECONDS = 1, 3
"""Spark's limit for idle workers, and the time for which tasks of `QuietFetcher` are silent."""
MARKS = "kafka.tests.marks"
"""The option of `SlowFetcher` with a folder that gets an empty file for each attempt: `TASK-ATTEMPT`, both from 0."""
_LONGEST = 60.0


class QuietFetcher(PassingFetcher):
    """Lets a task be silent for longer than Spark's limit for idle workers."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(open_fetcher(parse_options(options(), streaming=False).storage))
        self.properties = properties

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        if (context := TaskContext.get()) is not None:
            self.wait(context)
        return super().fetch_log_segment(segment, start, end)

    def wait(self, _: TaskContext) -> None:
        time.sleep(SILENT_SECONDS)


class SlowFetcher(QuietFetcher):
    """Makes a task's first attempt wait until Spark has started a speculative one."""

    def wait(self, context: TaskContext) -> None:
        marks = Path(self.properties[MARKS.removeprefix("kafka.")])
        task, attempt = context.partitionId(), context.attemptNumber()
        (marks / f"{task}-{attempt}").touch()
        deadline = time.monotonic() + _LONGEST
        while attempt == 0 and not (marks / f"{task}-1").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
