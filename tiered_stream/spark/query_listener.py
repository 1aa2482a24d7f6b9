"""Spark listener that passes each finished micro-batch of a session's streaming queries to reporters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TextIO

from pyspark.sql.streaming import listener

from tiered_stream.observe.landed_rows import describe_rows
from tiered_stream.observe.metrics import OBSERVATION, ReadMetrics, describe
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.progress import MicroBatch, as_json, describe_batch, finished_batch, source_offsets
from tiered_stream.observe.query_metrics import QuerySums

log = logging.getLogger(__name__)


class BatchReporter(Protocol):
    """Interface of the objects to which `QueryListener` reports finished micro-batches and ended queries."""

    def add(self, batch: MicroBatch) -> None:
        """Report a finished micro-batch. `batch` has its query, rows and counters."""

    def ended(self, query_id: str) -> None:
        """Take note that the query `query_id` has ended. No later micro-batch of this query is reported."""


class BatchLines:
    """Reporter that prints one line for each micro-batch with rows, as JSON or as text.

    Args:
        json: True: the lines are JSON; false: they are text, and an ended query has one more line with its sum.
        out: stream for the lines; None: standard error.
    """

    def __init__(self, *, json: bool, out: TextIO | None = None) -> None:
        self._json = json
        self._out = out
        self._sums: dict[str, QuerySums] = {}
        """Sums of running queries, by query id."""

    def add(self, batch: MicroBatch) -> None:
        """Print a line about the micro-batch, if it has rows."""
        self._sums[batch.query_id] = (self._sums.get(batch.query_id) or QuerySums(batch)).after(batch)
        if batch.rows:
            self._print(as_json(batch).decode() if self._json else f"{batch.query}: {describe_batch(batch)}")

    def ended(self, query_id: str) -> None:
        """Print the sum of the query's micro-batches, unless the lines are JSON, whose readers add up themselves."""
        query = self._sums.pop(query_id, None)
        if query is not None and not self._json and query.cost != ReadMetrics():
            rows = describe_rows(query.rows, query.tables)
            self._print(f"{query.last.query}: in all {rows}, {describe(query.cost)}")

    def _print(self, line: str) -> None:
        print(line, file=self._out or sys.stderr, flush=True)


class QueryListener(listener.StreamingQueryListener):
    """Spark listener that passes each finished micro-batch to the reporters, with its tasks' counters.

    Tasks send their counters to `receiver`. If a reporter raises an exception for a micro-batch, the exception is only
    logged. `reports_lag` is false if the Spark that runs the queries reports no latest offsets.
    """

    def __init__(
        self, receiver: MetricsReceiver, reporters: Sequence[BatchReporter], *, reports_lag: bool = True
    ) -> None:
        self._receiver = receiver
        self._reports_lag = reports_lag
        self._reporters = reporters
        self._ours: set[str] = set()
        self._loaded_before: set[str] = set()

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no micro-batch has ended yet."""

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no new data."""

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Pass the micro-batch to the reporters if Spark has counters of it, or tasks of the query have ever sent some.

        Only queries of this package's sources have counters.
        """
        progress = event.progress
        query_id = str(progress.id)
        counted = self._receiver.take_micro_batch((query_id, progress.batchId))
        if counted != ReadMetrics() or OBSERVATION in progress.observedMetrics:
            self._ours.add(query_id)
        if query_id not in self._ours:
            self._warn_if_loaded_before(progress)
            return
        try:
            batch = finished_batch(progress, counted, reports_lag=self._reports_lag)
            for reporter in self._reporters:
                reporter.add(batch)
        except Exception as error:  # noqa: BLE001 - a terminal that is gone, a progress of another Spark
            log.warning("micro-batch %d of %s is not reported: %r", progress.batchId, query_id, error)

    def _warn_if_loaded_before(self, progress: listener.StreamingQueryProgress) -> None:
        """Warn once of a query that reads rows by this package's source and sends no counters.

        Perhaps its stream was loaded before `report_queries` was called. Without a port for counters, the receiver has
        warned.
        """
        reads = progress.numInputRows and any(map(_is_ours, progress.sources))
        if reads and self._receiver.address and str(progress.id) not in self._loaded_before:
            self._loaded_before.add(str(progress.id))
            log.warning(
                "query %s is not reported, because none of its tasks has reported to %s by UDP. Call report_queries "
                "before load(), and let no firewall block this address. Tasks that stop early (limit) report nothing",
                progress.name or progress.id, self._receiver.address,
            )  # fmt: skip

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Report the query's end to the reporters, so that they no longer show its figures."""
        self._ours.discard(str(event.id))
        self._loaded_before.discard(str(event.id))
        self._receiver.forget(str(event.id))
        try:
            for reporter in self._reporters:
                reporter.ended(str(event.id))
        except OSError as error:  # a terminal that is gone
            log.warning("the end of query %s is not reported: %r", event.id, error)


def _is_ours(source: listener.SourceProgress) -> bool:
    """Return whether a source is written in Python and has offsets by topic and partition.

    Spark describes a Python source by the name of Spark's own class, not by the source's name.
    """
    with suppress(ValueError, AttributeError):  # offsets of another source
        return "PythonMicroBatchStream" in source.description and source_offsets(source.endOffset) is not None
    return False
