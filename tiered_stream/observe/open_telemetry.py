"""Reporter of streaming queries' metrics by OpenTelemetry, whose SDK reads the sums and sends them by OTLP/HTTP.

The metrics have the names of `prometheus_metrics`. OpenTelemetry's environment variables apply: for the exporter
(`OTEL_EXPORTER_OTLP_HEADERS`, `_CERTIFICATE`, `_TIMEOUT`, `_METRICS_TEMPORALITY_PREFERENCE`, …), for the reader
(`OTEL_METRIC_EXPORT_INTERVAL`) and for the resource (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter, ObservableGauge, export
from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from tiered_stream.errors import ConfigurationError
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.prometheus_metrics import LATENCIES, QueryMetrics, QuerySums
from tiered_stream.observe.read_metrics import LATENCY_BOUNDS_MS, ReadMetrics, within
from tiered_stream.options.types import is_http_url

log = logging.getLogger(__name__)

_PATH = "/v1/metrics"
_CUMULATIVE, _DELTA = export.AggregationTemporality.CUMULATIVE, export.AggregationTemporality.DELTA
_BOUNDS = [bound / 1000 for bound in LATENCY_BOUNDS_MS]
_SERVICE = "tiered_stream"
_SERIES: export.CardinalityLimits = {ObservableCounter: 100_000, ObservableGauge: 100_000}
"""Maximum number of series of a metric. The lag has one series for each partition, and the SDK's default is 2,000."""
_MAX_ENDED = 1_000
"""Maximum number of ended queries whose sums are kept. If such a query starts again, its sums continue."""

_LAST_EXPORTS = 2
"""Number of exports in which an ended query's sums are still sent.

The first export may have begun before the end, and so lack the last sums.
"""


class OtlpSender:
    """Reporter that sends the queries' metrics by OTLP, every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds.

    A separate thread sends, so that a slow collector delays no query. After a query has ended, its last sums are sent
    twice, and then no longer. If the collector cannot be reached, one warning is logged.

    Args:
        endpoint: `http://host:4318`, or a URL with a path, which then replaces `/v1/metrics`.

    Raises:
        ConfigurationError: the endpoint or an environment variable of OpenTelemetry is malformed.
    """

    def __init__(self, endpoint: str) -> None:
        url = _metrics_url(endpoint)
        self._sums = QueryMetrics()
        """Sums by the query's name, not by its id. So a counter does not decrease if the query starts again."""
        self._names: dict[str, str] = {}
        """Names of running queries, by query id."""
        self._ended: dict[str, int] = {}
        """Number of exports that still send an ended query's sums, by the query's name; the first ended query is first.
        """
        self._lock = threading.Lock()
        try:
            exporter = _Exporter(url, self._sums.sums, self._sums_to_send, self._on_sent)
            reader = export.PeriodicExportingMetricReader(exporter, cardinality_limits=_SERIES)
        except ValueError as error:
            raise ConfigurationError(f"OTEL_METRIC_EXPORT_INTERVAL: {error}") from error
        self._provider = MeterProvider([reader], _resource(), shutdown_on_exit=False)
        self._register_metrics()

    def add(self, batch: MicroBatch) -> None:
        """Add a finished micro-batch to its query's sums."""
        with self._lock:
            self._names[batch.query_id] = batch.query
            self._ended.pop(batch.query, None)
        self._sums.add(replace(batch, query_id=batch.query))

    def ended(self, query_id: str) -> None:
        """Mark the query as ended: its last sums are sent twice, and then no longer.

        If another running query has the same name, the sums are still sent. Beyond 1,000 ended queries, the sums of the
        query that ended first are deleted.
        """
        with self._lock:
            name = self._names.pop(query_id, None)
            if name is not None and name not in self._names.values():
                self._ended[name] = _LAST_EXPORTS
            for forgotten in list(self._ended)[:-_MAX_ENDED]:
                del self._ended[forgotten]
                self._sums.ended(forgotten)

    def close(self) -> None:
        """Send the last metrics in one attempt of at most 10 s (or OpenTelemetry's timeout), and stop the sender."""
        try:
            self._provider.shutdown()
        except Exception as error:  # noqa: BLE001 - the queries have ended well
            log.warning("metrics were perhaps not sent: %r", error)

    def _register_metrics(self) -> None:
        """Register a callback for each metric of `QueryMetrics` except the latencies, which the exporter adds."""
        meter = self._provider.get_meter(_SERVICE)
        for family in self._sums.collect():
            name, text, callbacks = family.name, family.documentation, [partial(self._observations, family.name)]
            if family.type == "counter":
                meter.create_observable_counter(name, callbacks, description=text)
            elif family.type == "gauge":
                meter.create_observable_gauge(name, callbacks, description=text)

    def _observations(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        running = self._sums_to_send()
        families = (family for family in self._sums.collect() if family.name == name)
        return [
            Observation(sample.value, dict(sample.labels))
            for family in families
            for sample in family.samples
            if sample.labels["query"] in running
        ]

    def _sums_to_send(self) -> dict[str, QuerySums]:
        """Return, by the query's name, the sums that are still to be sent."""
        with self._lock:
            sent = {query for query, exports in self._ended.items() if not exports}
        return {name: query for name, query in self._sums.sums().items() if name not in sent}

    def _on_sent(self) -> None:
        with self._lock:
            self._ended = {query: max(0, exports - 1) for query, exports in self._ended.items()}


_Sums = Callable[[], Mapping[str, QuerySums]]


class _Exporter(OTLPMetricExporter):
    """OTLP exporter that adds the latencies of storage requests to each export.

    It logs one line when sending begins to fail or works again. The lines that OpenTelemetry's exporter logs at each
    attempt are suppressed. `sums` returns all sums by query name, and `to_send` returns the sums to send. `on_sent` is
    called after each success.
    """

    def __init__(self, url: str, sums: _Sums, to_send: _Sums, on_sent: Callable[[], None]) -> None:
        super().__init__(url)
        self._url, self._sums, self._to_send, self._on_sent, self._failing = url, sums, to_send, on_sent, False
        self._latencies = _LatencyHistograms(
            is_delta=(self._preferred_temporality or {}).get(HistogramInstrument) is _DELTA
        )

    def export(
        self, metrics_data: export.MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> export.MetricExportResult:
        lines: list[str] = []
        thread, own_log = threading.get_ident(), logging.getLogger(OTLPMetricExporter.__module__)

        def passes(record: logging.LogRecord) -> bool:
            """Return whether a log record passes the filter; collect the records of this thread in `lines` instead."""
            if threading.get_ident() != thread:
                return True
            lines.append(record.getMessage())
            return False

        own_log.addFilter(passes)
        try:
            self._latencies.keep(self._sums())
            with_latencies = self._latencies.added_to(metrics_data, self._to_send())
            result = super().export(with_latencies, timeout_millis, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the queries go on
            result = export.MetricExportResult.FAILURE
            lines.append(repr(error))
        finally:
            own_log.removeFilter(passes)
        failed = result is not export.MetricExportResult.SUCCESS
        if failed and not self._failing:
            reason = lines[0] if lines else "the exporter does not say why"
            log.warning("metrics could not be sent to %s, and are tried again: %s", self._url, reason)
        elif self._failing and not failed:
            log.info("metrics are sent to %s again", self._url)
        self._failing = failed
        if not failed:
            self._on_sent()
        return result


class _LatencyHistograms:
    """Histograms of the latencies of storage requests, by query.

    A histogram counts all requests so far or, with `is_delta`, the requests since the last call of `added_to` that had
    the query. The SDK's own histogram takes latencies one by one, but reports have only their numbers by bucket.
    """

    def __init__(self, *, is_delta: bool) -> None:
        self._is_delta = is_delta
        self._since = time.time_ns()
        self._before: dict[str, ReadMetrics] = {}

    def keep(self, queries: Collection[str]) -> None:
        """Forget all queries except `queries` (names). If another query starts again, its sums begin at 0."""
        self._before = {name: cost for name, cost in self._before.items() if name in queries}

    def added_to(self, data: export.MetricsData, sums: Mapping[str, QuerySums]) -> export.MetricsData:
        """Return `data` with the metric of the latencies of `sums` (by query name) added to its last scope."""
        if not (sums and data.resource_metrics and data.resource_metrics[-1].scope_metrics):
            return data
        *resources, resource = data.resource_metrics
        *scopes, scope = resource.scope_metrics
        scope = replace(scope, metrics=[*scope.metrics, self._metric({name: each.cost for name, each in sums.items()})])
        return export.MetricsData([*resources, replace(resource, scope_metrics=[*scopes, scope])])

    def _metric(self, costs: Mapping[str, ReadMetrics]) -> export.Metric:
        now = time.time_ns()
        points = [self._point(name, cost, now) for name, cost in costs.items()]
        if self._is_delta:
            self._since, self._before = now, {**self._before, **costs}
        (name, text), temporality = LATENCIES, _DELTA if self._is_delta else _CUMULATIVE
        return export.Metric(name, text, "", export.Histogram(points, temporality))

    def _point(self, name: str, cost: ReadMetrics, now: int) -> export.HistogramDataPoint:
        cost = cost.since(self._before.get(name, ReadMetrics()))
        up_to = [0, *(getattr(cost, within(bound)) for bound in LATENCY_BOUNDS_MS), cost.remote_fetch_requests]
        return export.HistogramDataPoint(
            {"query": name},
            self._since,
            now,
            count=cost.remote_fetch_requests,
            sum=cost.remote_fetch_latency_total,
            bucket_counts=[upper - lower for lower, upper in pairwise(up_to)],
            explicit_bounds=_BOUNDS,
            min=None,  # type: ignore[arg-type]  # OTLP: optional, and unknown here
            max=None,  # type: ignore[arg-type]
        )


def _resource() -> Resource:
    """Return OpenTelemetry's description of this service. Without `OTEL_SERVICE_NAME`, its name is `tiered_stream`.

    The SDK gives each process its own `service.instance.id`, so that the sums of two drivers stay apart.
    """
    resource = Resource.create()
    is_named = not str(resource.attributes[SERVICE_NAME]).startswith("unknown_service")
    return resource if is_named else resource.merge(Resource({SERVICE_NAME: _SERVICE}))


def _metrics_url(endpoint: str) -> str:
    """Return the URL to which metrics are sent: the endpoint, with `/v1/metrics` added if it has no path."""
    if "@" in endpoint or "?" in endpoint:
        raise ConfigurationError("an endpoint for OTLP has no credentials in it: OTEL_EXPORTER_OTLP_HEADERS takes them")
    if not is_http_url(endpoint):
        raise ConfigurationError(f"{endpoint!r} is no endpoint for OTLP, such as http://collector:4318")
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _PATH
