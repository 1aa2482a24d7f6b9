"""What a collector of OpenTelemetry gets, and what becomes of queries where there is none."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.core import Metric

from tests.observe.otlp_collector import OtlpCollector, attributes
from tests.stack.processes import wait_until
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import TopicPartition
from tiered_stream.observe.metrics import ReadMetrics
from tiered_stream.observe.open_telemetry import OtlpSender
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.query_metrics import PREFIX, QueryMetrics


def batch(number: int = 0, query: str = "orders", rows: int = 700) -> MicroBatch:
    cost = ReadMetrics(records=rows, record_timestamp_max=1, decode_seconds=0.5, broker_fetch_bytes=77)
    for seconds in (0.004, 0.03, 4.0, 30.0):
        cost.on_remote_fetch(1000, seconds)
    cost.on_fallback("refused")
    lag = {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 0}
    return MicroBatch(query, f"id of {query}", number, "2026-11-22T19:00:00.000Z", rows, 2.0, rows / 2, cost, lag)


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as made:
        yield made


def send(endpoint: str, *batches: MicroBatch) -> QueryMetrics:
    """Tell of the batches as a listener does, to the end."""
    metrics = QueryMetrics()
    sender = OtlpSender(endpoint, metrics)
    for each in batches:
        metrics.add(each)
        sender.add(each)
    sender.close()
    return metrics


def test_a_collector_gets_what_prometheus_gets(collector: OtlpCollector) -> None:
    metrics = send(collector.endpoint, batch())
    served = {
        (sample.name.removesuffix("_total"), *dict(sorted(sample.labels.items())).values()): sample.value
        for family in metrics.registry.collect()
        if family.type != "histogram"
        for sample in family.samples
    }
    got = collector.newest()
    age = (f"{PREFIX}lag_seconds", "orders")
    assert got.pop(age) > 0 and served.pop(age) > 0
    assert got == served and len(got) == 12
    kinds = {metric.name.removeprefix(PREFIX): metric.WhichOneof("data") for metric in collector.metrics()}
    assert (kinds["rows"], kinds["batch_seconds"]) == ("sum", "gauge")
    (rows,) = (metric.sum for metric in collector.metrics() if metric.name == f"{PREFIX}rows")
    assert rows.is_monotonic and rows.aggregation_temporality == 2
    (point,) = rows.data_points
    assert point.time_unix_nano - point.start_time_unix_nano == 2_000_000_000


def test_latencies_are_a_histogram_whose_buckets_add_up(collector: OtlpCollector) -> None:
    metrics = send(collector.endpoint, batch())
    (family,) = (each for each in metrics.registry.collect() if each.type == "histogram")
    (point,) = (p for metric in collector.metrics() for p in metric.histogram.data_points)
    assert list(point.explicit_bounds) == [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0]
    assert list(point.bucket_counts) == [1, 0, 1, 0, 0, 0, 0, 0, 1, 1]
    assert (point.count, point.sum) == (4, pytest.approx(34.034))
    assert attributes(point) == [("query", "orders")]
    assert cumulative(family) == [1, 1, 2, 2, 2, 2, 2, 2, 3, 4]


def cumulative(family: Metric) -> list[float]:
    return [each.value for each in family.samples if each.name.endswith("_bucket")]


def test_each_query_has_sums_of_its_own_until_it_ends(collector: OtlpCollector) -> None:
    metrics = QueryMetrics()
    sender = OtlpSender(collector.endpoint, metrics)
    for each in (batch(0), batch(1), batch(0, "payments", 10)):
        metrics.add(each)
        sender.add(each)
    for told in (metrics, sender):
        told.ended("id of orders")
    sender.close()
    got = collector.newest()
    assert (got[f"{PREFIX}rows", "orders"], got[f"{PREFIX}rows", "payments"]) == (1400, 10)
    assert got[f"{PREFIX}batch_id", "orders"] == 1


def test_opentelemetrys_own_variables_hold(collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=canary")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    send(collector.endpoint + "/", batch())
    assert collector.headers["api-key"] == "canary"
    (resource,) = collector.requests[0].resource_metrics
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert named == {"service.name": "tiered_stream", "deployment.environment": "test"}


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_nobody_at_the_endpoint_is_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")  # time for a second try: the first says why
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    send(endpoint, batch(), batch(1), batch(0, "payments"))
    (line,) = warned(caplog)
    assert line.startswith(f"metrics are not sent to {endpoint}/v1/metrics") and "refused" in line


def test_a_collector_that_comes_back_gets_the_sums(collector: OtlpCollector, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tiered_stream")
    collector.status = 403
    metrics = QueryMetrics()
    sender = OtlpSender(collector.endpoint, metrics)
    for number in range(3):
        if number == 2:
            wait_until(lambda: bool(warned(caplog)), "the warning")
            collector.status = 200
        metrics.add(batch(number))
        sender.add(batch(number))
    sender.close()
    assert collector.newest()[f"{PREFIX}rows", "orders"] == 2100
    (line,) = warned(caplog)
    assert "403" in line and caplog.messages[-1].endswith("again")


def test_the_users_own_log_of_the_exporter_stays_theirs(collector: OtlpCollector) -> None:
    exporters = logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    before = list(exporters.filters)
    send(collector.endpoint, replace(batch(), lag=None))
    assert exporters.filters == before


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "grpc://collector", "http://", "http://host:port", "http://[::1"]
)
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="is no endpoint for OTLP, such as http://collector:4318"):
        OtlpSender(endpoint, QueryMetrics())


@pytest.mark.parametrize("endpoint", ["http://user:canary@collector:4318", "http://collector:4318?key=canary"])
def test_a_secret_in_the_endpoint_is_refused_and_not_shown(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        OtlpSender(endpoint, QueryMetrics())
    assert "canary" not in str(refused.value)
