"""A fetcher of a user's own that lets a task be silent for longer than Spark's limit for idle workers."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark import TaskContext

from tests.delta.archive import options
from tests.tier.fetchers import PassingFetcher
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.parsing import parse_options
from tiered_stream.storage.open_fetcher import open_fetcher

IDLE_SECONDS = 1
"""The limit for which `SILENT_SECONDS` are too many."""
SILENT_SECONDS = 3


class QuietFetcher(PassingFetcher):
    """The golden archive's, but for the silence of tasks."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(open_fetcher(parse_options(options(), streaming=False).storage))

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        if TaskContext.get() is not None:
            time.sleep(SILENT_SECONDS)
        return super().fetch_log_segment(segment, start, end)
