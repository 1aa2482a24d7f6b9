"""What streaming queries did and cost, for OpenTelemetry: the figures of a query after each micro-batch, by OTLP/HTTP.

They are those that Prometheus gets, under the same names. What OpenTelemetry's own variables say
(`OTEL_EXPORTER_OTLP_HEADERS`, `_CERTIFICATE`, `_TIMEOUT`, `_COMPRESSION`, `OTEL_SERVICE_NAME`, …) holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from tiered_stream.errors import ConfigurationError
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.query_metrics import QueryMetrics

log = logging.getLogger(__name__)

_PATH = "/v1/metrics"
_SCOPE = InstrumentationScope("tiered_stream")


class OtlpSender:
    """Sends, in a thread of its own, so that a slow collector keeps nobody waiting.

    Of a query whose figures wait, newer ones take their place: counters are sums, so that none is lost. Where nobody
    takes them, a warning says so once.

    Args:
        endpoint: `http://host:4318`, or with a path of its own in place of `/v1/metrics`.
        metrics: who adds up; is told of each micro-batch before this is.

    Raises:
        ConfigurationError: the endpoint is malformed.
    """

    def __init__(self, endpoint: str, metrics: QueryMetrics) -> None:
        self._endpoint = _metrics_url(endpoint)
        self._metrics = metrics
        self._exporter = OTLPMetricExporter(self._endpoint)
        self._resource = Resource({SERVICE_NAME: "tiered_stream"}).merge(OTELResourceDetector().detect())
        self._begun_ns: dict[str, int] = {}
        self._waiting: dict[str, list[Metric]] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def add(self, batch: MicroBatch) -> None:
        """A micro-batch has ended."""
        now_ns = time.time_ns()
        begun_ns = self._begun_ns.setdefault(batch.query_id, now_ns - int(batch.seconds * 1e9))
        found = [_metric(each, begun_ns, now_ns) for each in self._metrics.of_query(batch.query_id) if each.samples]
        with self._changed:
            self._waiting[batch.query_id] = found
            self._changed.notify()

    def ended(self, query_id: str) -> None:
        """The query runs no more; its last figures are still sent."""
        self._begun_ns.pop(query_id, None)

    def close(self) -> None:
        """Send what waits, up to the first attempt that fails, which takes 10 seconds at most, or the timeout given."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        said = _Said(threading.get_ident())
        exporters_log = logging.getLogger(OTLPMetricExporter.__module__)
        exporters_log.addFilter(said)
        try:
            while waiting := self._take():
                for metrics in waiting:
                    self._send(metrics, said)
                    if self._failing and self._closing:
                        break
        finally:
            exporters_log.removeFilter(said)

    def _take(self) -> list[list[Metric]]:
        """What waits for being sent, once there is something; nothing: that was all."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            taken, self._waiting = list(self._waiting.values()), {}
            return taken

    def _send(self, metrics: Sequence[Metric], said: _Said) -> None:
        said.lines.clear()
        data = MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(_SCOPE, metrics, "")], "")])
        try:
            failed = self._exporter.export(data) is not MetricExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the queries go on
            failed = True
            said.lines.append(repr(error))
        if failed and not self._failing:
            reason = said.lines[0] if said.lines else "the exporter does not say why"
            log.warning("metrics are not sent to %s, those of the next micro-batch may be: %s", self._endpoint, reason)
        elif self._failing and not failed:
            log.info("metrics are sent to %s again", self._endpoint)
        self._failing = failed


class _Said(logging.Filter):
    """Keeps what the exporter logs in our thread, several lines an attempt, in place of the user's log."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread
        self.lines: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is somebody else's."""
        if threading.get_ident() != self._thread:
            return True
        self.lines.append(record.getMessage())
        return False


def _metrics_url(endpoint: str) -> str:
    """Raises ConfigurationError: it is no URL of HTTP, or has what belongs elsewhere."""
    try:
        parts = urlsplit(endpoint)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if "@" in endpoint or "?" in endpoint:
        raise ConfigurationError("an endpoint for OTLP has no credentials in it: OTEL_EXPORTER_OTLP_HEADERS takes them")
    if not fits:
        raise ConfigurationError(f"{endpoint!r} is no endpoint for OTLP, such as http://collector:4318")
    return endpoint if parts.path.strip("/") else endpoint.rstrip("/") + _PATH


def _metric(family: Family, begun_ns: int, now_ns: int) -> Metric:
    """A query's, of a family with samples of that query alone."""
    if family.type == "histogram":
        return Metric(family.name, family.documentation, "", _histogram(family, begun_ns, now_ns))
    points = [NumberDataPoint(each.labels, begun_ns, now_ns, each.value) for each in family.samples]
    data = Sum(points, AggregationTemporality.CUMULATIVE, True) if family.type == "counter" else Gauge(points)
    return Metric(family.name, family.documentation, "", data)


def _histogram(family: Family, begun_ns: int, now_ns: int) -> Histogram:
    """Prometheus counts in a bucket what is in those below it as well, OpenTelemetry does not."""
    buckets = [each for each in family.samples if each.name.endswith("_bucket")]
    (total,) = (each for each in family.samples if each.name.endswith("_sum"))
    within = [int(each.value) for each in buckets]
    point = HistogramDataPoint(
        attributes=total.labels,
        start_time_unix_nano=begun_ns,
        time_unix_nano=now_ns,
        count=within[-1],
        sum=total.value,
        bucket_counts=[above - below for below, above in pairwise([0, *within])],
        explicit_bounds=[float(each.labels["le"]) for each in buckets[:-1]],
        min=None,  # type: ignore[arg-type]  # optional on the wire
        max=None,  # type: ignore[arg-type]
    )
    return Histogram([point], AggregationTemporality.CUMULATIVE)
