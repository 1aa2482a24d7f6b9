"""Tells of every micro-batch of every streaming query of a session, as it ends."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Protocol, TextIO

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tiered_stream.observe.metrics import ReadMetrics
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.progress import MicroBatch, as_json, cost_of, describe_batch, micro_batch

log = logging.getLogger(__name__)


class Told(Protocol):
    """Who wants to know."""

    def add(self, batch: MicroBatch) -> None:
        """A micro-batch has ended."""

    def ended(self, query_id: str) -> None:
        """A query has ended."""


class BatchLines:
    """A line for each micro-batch with rows."""

    def __init__(self, *, json: bool, out: TextIO | None = None) -> None:
        self._json = json
        self._out = out

    def add(self, batch: MicroBatch) -> None:
        """Write it."""
        if batch.rows:
            line = as_json(batch).decode() if self._json else f"{batch.query}: {describe_batch(batch)}"
            print(line, file=self._out or sys.stderr, flush=True)

    def ended(self, query_id: str) -> None:
        """Nothing to say."""


class QueryListener(StreamingQueryListener):
    """Adds what tasks have counted to Spark's own progress. What goes wrong here never stops a query."""

    def __init__(self, receiver: MetricsReceiver, told: Sequence[Told]) -> None:
        self._receiver = receiver
        self._told = told
        self._ours: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing has happened yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is new."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Of queries with a source of ours: they have counted something once."""
        progress = event.progress
        query_id = str(progress.id)
        counted = self._receiver.take_micro_batch((query_id, progress.batchId))
        if counted != ReadMetrics():
            self._ours.add(query_id)
        if query_id not in self._ours:
            return
        try:
            batch = micro_batch(progress, cost_of(progress, counted))
            for each in self._told:
                each.add(batch)
        except Exception as error:  # noqa: BLE001 - a terminal that is gone, a progress of another Spark
            log.warning("micro-batch %d of %s is not told of: %r", progress.batchId, query_id, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Its figures are no figures of now."""
        self._ours.discard(str(event.id))
        for each in self._told:
            each.ended(str(event.id))
