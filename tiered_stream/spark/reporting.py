"""`report_queries`: report micro-batches of a session's streaming queries as lines, to Prometheus and OpenTelemetry."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError
from tiered_stream.observe.health_and_metrics import Monitor
from tiered_stream.observe.metrics import REPORT_TO
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.query_metrics import QueryMetrics
from tiered_stream.options.types import host_and_port
from tiered_stream.spark.query_listener import BatchLines, QueryListener, Told
from tiered_stream.spark.source import register

if TYPE_CHECKING:
    from tiered_stream.observe.open_telemetry import OtlpSender

log = logging.getLogger(__name__)

_BUS_MS = 10_000
LINES = ("text", "json", "none")


class QueryReports(AbstractContextManager["QueryReports"]):
    """Running reports on a session's streaming queries, until `close`.

    `port` is the port of `/metrics`, or None if `/metrics` is not served.
    """

    def __init__(
        self, spark: SparkSession, told: list[Told], receiver: MetricsReceiver, port: int | None, opened: ExitStack
    ) -> None:
        self._spark = spark
        self._opened = opened
        self._listener = QueryListener(receiver, told)
        spark.streams.addListener(self._listener)
        spark.conf.set(REPORT_TO, receiver.address)
        register(spark)
        self.port = port

    def close(self) -> None:
        """Report the micro-batches that have ended by now, then stop reporting. Running queries continue."""
        with suppress(Exception):  # Spark Connect has no listener bus in this process
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_BUS_MS)
        self._spark.streams.removeListener(self._listener)
        self._spark.conf.unset(REPORT_TO)
        register(self._spark)
        self._opened.close()

    def __exit__(self, *exception: object) -> None:
        self.close()


def report_queries(
    spark: SparkSession, *, lines: str = "text", prometheus: str | None = None, otlp: str | None = None
) -> QueryReports:
    """Report every micro-batch of the streaming queries that this session starts from now on, whatever their sink.

    Args:
        lines: `text` or `json` prints a line on standard error for each micro-batch with rows; `none` prints no lines.
        prometheus: `host:port` at which `/metrics` is served. If the port cannot be opened, the log has a warning.
        otlp: `http://host:4318` of an OpenTelemetry collector. If it cannot be reached, the log has a warning.

    Raises:
        ConfigurationError: an argument is malformed.
    """
    if lines not in LINES:
        raise ConfigurationError(f"lines is {lines!r}; it may be {', '.join(LINES)}")
    host, bind = spark.conf.get("spark.driver.host", None), spark.conf.get("spark.driver.bindAddress", None)
    metrics = QueryMetrics()
    told: list[Told] = [metrics] if lines == "none" else [BatchLines(json=lines == "json"), metrics]
    with ExitStack() as opened:
        monitor = _monitor(prometheus, metrics) if prometheus else None
        if monitor:
            opened.callback(monitor.close)
        sender = _sender(otlp) if otlp else None
        if sender:
            opened.callback(sender.close)
            told.append(sender)
        receiver = opened.enter_context(MetricsReceiver(host or "127.0.0.1", bind))
        return QueryReports(spark, told, receiver, monitor.port if monitor else None, opened.pop_all())


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
