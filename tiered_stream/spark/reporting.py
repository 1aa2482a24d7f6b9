"""Function `report_queries`, which reports a session's micro-batches as lines, to Prometheus, and to OpenTelemetry."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import ReportAddress
from tiered_stream.observe.prometheus_endpoint import Monitor
from tiered_stream.observe.query_metrics import QueryMetrics
from tiered_stream.options.types import host_and_port
from tiered_stream.spark.query_listener import BatchLines, BatchReporter, QueryListener
from tiered_stream.spark.report_addresses import open_receiver, session_addresses, set_session_addresses
from tiered_stream.spark.source import register
from tiered_stream.spark.stream_reader import has_read_limits

if TYPE_CHECKING:
    from tiered_stream.observe.open_telemetry import OtlpSender

log = logging.getLogger(__name__)

_BUS_MS = 10_000
LINES = ("text", "json", "none")


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

    A stream that was loaded before does not send its counters here. The log warns of its query. If no port can be
    opened for the counters, the log has a warning, and only queries of the direct lane are reported.

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
        sender = _sender(otlp) if otlp else None
        if sender:
            resources.callback(sender.close)
            reporters.append(sender)
        receiver = resources.enter_context(open_receiver(spark))
        listener = QueryListener(receiver, reporters, reports_lag=has_read_limits(spark))
        spark.streams.addListener(listener)
        _report_to(spark, [*session_addresses(spark), *receiver.report_to])
        # The last callback is called first.
        resources.callback(_report_no_longer_to, spark, receiver.report_to)
        resources.callback(spark.streams.removeListener, listener)
        resources.callback(_await_events, spark)
        return QueryReports(monitor.port if monitor else None, resources.pop_all())


def _report_to(spark: SparkSession, addresses: Sequence[ReportAddress]) -> None:
    """Let tasks of streams that are loaded from now on send their counters to the addresses."""
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


def _sender(endpoint: str) -> OtlpSender | None:
    try:
        from tiered_stream.observe.open_telemetry import OtlpSender
    except ImportError as error:
        log.warning("metrics are not sent to OpenTelemetry, pip install 'tiered-stream[otel]': %s", error)
        return None
    return OtlpSender(endpoint)
