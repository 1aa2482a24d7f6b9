"""Reports on a session's finished micro-batches: printed lines, Prometheus and OpenTelemetry (`report_queries`)."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from typing import Protocol, TextIO

from pyspark.sql import SparkSession
from pyspark.sql.streaming import listener

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import ReportAddress
from tiered_stream.observe.landed_rows import describe_rows
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.progress import MicroBatch, as_json, describe_batch, end_offsets, finished_batch
from tiered_stream.observe.prometheus_endpoint import Monitor
from tiered_stream.observe.prometheus_metrics import QueryMetrics, QuerySums
from tiered_stream.observe.read_metrics import OBSERVATION, ReadMetrics, describe
from tiered_stream.options.types import host_and_port
from tiered_stream.spark.report_addresses import open_receiver, session_addresses, set_session_addresses
from tiered_stream.spark.source import register
from tiered_stream.spark.stream_reader import has_read_limits

log = logging.getLogger(__name__)
_BUS_MS = 10_000
LINES = ("text", "json", "none")


class BatchReporter(Protocol):
    """Interface of the objects to which `QueryListener` reports finished micro-batches and ended queries."""

    def add(self, batch: MicroBatch) -> None:
        """Report a finished micro-batch. `batch` has the micro-batch's query, rows and counters."""

    def ended(self, query_id: str) -> None:
        """Handle the end of the query `query_id`, such as by deleting its sums. The query may start again later."""


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
        """Print the sum of the query's micro-batches. Nothing is printed if the lines are JSON."""
        query = self._sums.pop(query_id, None)
        if query is not None and not self._json and query.cost != ReadMetrics():
            rows = describe_rows(query.rows, query.tables)
            self._print(f"{query.last.query}: in all {rows}, {describe(query.cost)}")

    def _print(self, line: str) -> None:
        print(line, file=self._out or sys.stderr, flush=True)


class QueryListener(listener.StreamingQueryListener):
    """Spark listener that passes each finished micro-batch to `reporters`, with the counters of the batch's tasks.

    Tasks send their counters to `receiver`. If a reporter raises an exception, the exception is only logged, and the
    other reporters are called. `reports_lag` is false if the Spark that runs the queries reports no latest offsets.
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

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Pass the micro-batch to the reporters if the query reads this package's source.

        A query does so if Spark's progress has this package's counters, or if the query's tasks have ever sent some.
        """
        progress = event.progress
        query_id = str(progress.id)
        counted = self._receiver.take_micro_batch((query_id, progress.batchId))
        if counted != ReadMetrics() or OBSERVATION in progress.observedMetrics:
            self._ours.add(query_id)
        if query_id not in self._ours:
            self._warn_if_loaded_before(progress)
            return
        subject = f"micro-batch {progress.batchId} of query {query_id}"
        with _logged_errors(subject):
            batch = finished_batch(progress, counted, reports_lag=self._reports_lag)
            for reporter in self._reporters:
                with _logged_errors(subject):
                    reporter.add(batch)

    def _warn_if_loaded_before(self, progress: listener.StreamingQueryProgress) -> None:
        """Log a warning, once for each query, if the query reads rows from this package's source but sends no counters.

        The stream may have been loaded before `report_queries` was called. If no port could be opened for counters,
        nothing is logged here, because the receiver has logged it.
        """
        reads = progress.numInputRows and any(end_offsets(source) is not None for source in progress.sources)
        if reads and self._receiver.address and str(progress.id) not in self._loaded_before:
            self._loaded_before.add(str(progress.id))
            log.warning(
                "query %s is not reported, because none of its tasks has reported to %s by UDP. Call report_queries "
                "before load(), and let no firewall block this address. Tasks that stop early (limit) report nothing",
                progress.name or progress.id, self._receiver.address,
            )  # fmt: skip

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Report the query's end to the reporters, so that they no longer show the query's figures."""
        self._ours.discard(str(event.id))
        self._loaded_before.discard(str(event.id))
        self._receiver.forget(str(event.id))
        for reporter in self._reporters:
            with _logged_errors(f"the end of query {event.id}"):
                reporter.ended(str(event.id))


@contextmanager
def _logged_errors(subject: str) -> Iterator[None]:
    """Log that `subject` is not reported if the block raises an exception, and suppress the exception."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a terminal that is gone, a progress of another Spark
        log.warning("%s is not reported: %r", subject, error)


class QueryReports(AbstractContextManager["QueryReports"]):
    """Running reports on a session's streaming queries, which `report_queries` has started; `close` stops the reports.

    `port` is the port of `/metrics`, or None if `/metrics` is not served. A program that ends without `close` closes
    the reports at its exit.
    """

    def __init__(self, port: int | None, resources: ExitStack) -> None:
        self.port = port
        self._resources = resources
        atexit.register(self._close_at_exit)

    def close(self) -> None:
        """Report the micro-batches that have ended so far, then stop reporting. Running queries continue."""
        atexit.unregister(self._close_at_exit)
        self._resources.close()

    def _close_at_exit(self) -> None:
        with suppress(Exception):  # the session may have been stopped before
            self.close()

    def __exit__(self, *exception: object) -> None:
        self.close()


def report_queries(
    spark: SparkSession, *, lines: str = "text", prometheus: str | None = None, otlp: str | None = None
) -> QueryReports:
    """Report every micro-batch of the streaming queries that this session loads and starts from now on, with any sink.

    A query of a stream that was loaded before is not reported, and a warning in the log says so. If no port can be
    opened for the tasks' counters, the log has a warning. Then only queries of the direct lane (`land` and the ingest
    job, if tasks write the table's files) are reported.

    Returns:
        The running reports. Call `close` on them to stop.

    Args:
        lines: `text` or `json` prints a line on standard error for each micro-batch with rows; `none` prints no lines.
        prometheus: `host:port` at which `/metrics` is served; None: it is not served. If the port cannot be opened, the
            log has a warning.
        otlp: `http://host:4318` of an OpenTelemetry collector; None: nothing is sent. If the collector cannot be
            reached, the log has a warning.

    Raises:
        ConfigurationError: an argument is malformed.
    """
    if lines not in LINES:
        raise ConfigurationError(f"lines is {lines!r}; it may be {', '.join(LINES)}")
    metrics = QueryMetrics()
    reporters: list[BatchReporter] = [metrics] if lines == "none" else [BatchLines(json=lines == "json"), metrics]
    with ExitStack() as resources:
        monitor = _monitor(prometheus, metrics) if prometheus else None
        if monitor:
            resources.callback(monitor.close)
        if otlp:
            reporters += _senders(otlp, resources)
        receiver = resources.enter_context(open_receiver(spark))
        listener = QueryListener(receiver, reporters, reports_lag=has_read_limits(spark))
        resources.callback(_report_no_longer_to, spark, receiver.report_to)  # the last callback is called first
        spark.streams.addListener(listener)
        resources.callback(spark.streams.removeListener, listener)
        resources.callback(_await_events, spark)
        _report_to(spark, [*session_addresses(spark), *receiver.report_to])
        return QueryReports(monitor.port if monitor else None, resources.pop_all())


def _report_to(spark: SparkSession, addresses: Sequence[ReportAddress]) -> None:
    """Let tasks of streams that are loaded from now on send their counters to `addresses`."""
    set_session_addresses(spark, addresses)
    register(spark)


def _report_no_longer_to(spark: SparkSession, addresses: Sequence[ReportAddress]) -> None:
    _report_to(spark, [other for other in session_addresses(spark) if other not in addresses])


def _await_events(spark: SparkSession) -> None:
    """Wait at most 10 s until Spark has passed all pending events to its listeners; ignore errors."""
    with suppress(Exception):  # Spark Connect has no listener bus in this process
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_BUS_MS)


def _monitor(address: str, metrics: QueryMetrics) -> Monitor | None:
    try:
        host, port = host_and_port(address, lowest_port=0)
    except ValueError as error:
        raise ConfigurationError(f"the address for Prometheus {address!r} {error}") from error
    try:
        return Monitor(host, port, metrics.registry, str)
    except OSError as error:
        log.warning("metrics are not served: %s cannot be listened at: %s", address, error)
        return None


def _senders(endpoint: str, resources: ExitStack) -> list[BatchReporter]:
    """Return a list with a reporter that sends to `endpoint` until `resources` is closed.

    The list is empty if OpenTelemetry is not installed.
    """
    try:
        from tiered_stream.observe.open_telemetry import OtlpSender
    except ImportError as error:
        log.warning("metrics are not sent to OpenTelemetry, pip install 'tiered-stream[otel]': %s", error)
        return []
    return [resources.enter_context(closing(OtlpSender(endpoint)))]
