"""What a collector of OpenTelemetry gets, and what becomes of queries where there is none."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.core import Metric

from tests.observe.otlp_collector import OtlpCollector, attributes
from tests.rigs.stack.processes import wait_until
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import TopicPartition
from tiered_stream.observe import open_telemetry
from tiered_stream.observe.open_telemetry import OtlpSender
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.prometheus_metrics import PREFIX, QueryMetrics
from tiered_stream.observe.read_metrics import ReadMetrics


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
    sender = OtlpSender(endpoint)
    for each in batches:
        metrics.add(each)
        sender.add(each)
    sender.close()
    return metrics


def flush(sender: OtlpSender) -> None:
    """Collect and send, as the SDK does each minute."""
    sender._provider.force_flush()


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)


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
    assert got == served and len(got) == 13
    kinds = {metric.name.removeprefix(PREFIX): metric.WhichOneof("data") for metric in collector.metrics()}
    assert (kinds["rows"], kinds["batch_seconds"]) == ("sum", "gauge")
    (rows,) = (metric.sum for metric in collector.metrics() if metric.name == f"{PREFIX}rows")
    assert rows.is_monotonic and rows.aggregation_temporality == 2


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


def test_a_query_that_has_ended_is_left_out_once_its_last_figures_were_sent(collector: OtlpCollector) -> None:
    sender = OtlpSender(collector.endpoint)
    for each in (batch(0), batch(1), batch(0, "payments", 10)):
        sender.add(each)
    sender.ended("id of orders")
    collector.status = 403
    flush(sender)
    collector.status = 200
    flush(sender)
    got = collector.newest()
    assert (got[f"{PREFIX}rows", "orders"], got[f"{PREFIX}rows", "payments"]) == (1400, 10)
    assert got[f"{PREFIX}batch_id", "orders"] == 1

    flush(sender)
    collector.requests.clear()
    flush(sender)
    kinds = [(metric.sum, metric.gauge, metric.histogram) for metric in collector.metrics()]
    points = [point for metric in kinds for kind in metric for point in kind.data_points]
    assert {dict(attributes(point))["query"] for point in points} == {"payments"}
    sender.close()


def test_counters_go_on_where_a_query_starts_again(collector: OtlpCollector) -> None:
    """Of the same name: with deltas, a sum that goes back would be less than nothing."""
    sender = OtlpSender(collector.endpoint)
    sender.add(batch(0))
    sender.ended("id of orders")
    flush(sender)
    flush(sender)
    sender.add(replace(batch(1), query_id="another id"))
    flush(sender)
    assert collector.newest()[f"{PREFIX}rows", "orders"] == 1400
    sender.close()


def test_a_query_that_goes_on_under_its_name_when_another_of_it_ends_is_not_left_out(collector: OtlpCollector) -> None:
    sender = OtlpSender(collector.endpoint)
    sender.add(batch(0))
    sender.add(replace(batch(0), query_id="another id"))
    sender.ended("id of orders")
    flush(sender)
    collector.requests.clear()
    flush(sender)
    assert collector.newest()[f"{PREFIX}rows", "orders"] == 1400
    sender.close()


def test_the_sdks_variables_hold(collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a delta, and nobody has to wait a minute for it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    sender = OtlpSender(collector.endpoint)
    for number in range(2):
        before = len(collector.requests)
        sender.add(batch(number))
        wait_until(lambda: len(collector.requests) > before, "the SDK to send by itself", pause=0.01)  # noqa: B023
    sender.close()
    sums = [metric.sum for metric in collector.metrics() if metric.name == f"{PREFIX}rows"]
    assert {each.aggregation_temporality for each in sums} == {1}
    assert sum(point.as_int for each in sums for point in each.data_points) == 1400
    counts = [point.count for metric in collector.metrics() for point in metric.histogram.data_points]
    assert sum(counts) == 8


@pytest.mark.parametrize("kept", [1, 2])
def test_deltas_count_each_request_of_a_query_that_starts_again_once(
    collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The sums of the query that ended first go on, or begin at zero if they are beyond those that are kept."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    monkeypatch.setattr(open_telemetry, "_MAX_ENDED", kept)
    sender = OtlpSender(collector.endpoint)
    for name in ("orders", "payments", "running"):
        sender.add(batch(0, name))
    sender.ended("id of orders")
    for _ in range(3):  # the third one has no sums of orders
        flush(sender)
    sender.ended("id of payments")
    flush(sender)
    sender.add(replace(batch(1), query_id="another id"))
    sender.close()
    points = [point for metric in collector.metrics() for point in metric.histogram.data_points]
    assert sum(point.count for point in points if attributes(point) == [("query", "orders")]) == 8


def test_a_malformed_interval_is_refused_and_a_disabled_sdk_sends_nothing(
    collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as malformed, pytest.raises(ConfigurationError, match="OTEL_METRIC_EXPORT_INTERVAL"):
        malformed.setenv("OTEL_METRIC_EXPORT_INTERVAL", "0")
        OtlpSender(collector.endpoint)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    send(collector.endpoint, batch())
    assert not collector.requests


def test_opentelemetrys_own_variables_hold(collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    send(collector.endpoint, batch())
    ours = named(collector.requests.pop())
    assert ours["service.name"] == "tiered_stream" and ours["service.instance.id"]

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=canary")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "lake")
    send(collector.endpoint + "/", batch())
    given = named(collector.requests.pop())
    assert (given["service.name"], given["service.instance.id"]) == ("lake", "mine")
    assert collector.headers["api-key"] == "canary"


def named(request: ExportMetricsServiceRequest) -> dict[str, str]:
    (resource,) = request.resource_metrics
    return {each.key: each.value.string_value for each in resource.resource.attributes}


def test_the_lag_of_many_partitions_is_not_cut_off(collector: OtlpCollector) -> None:
    lag = {TopicPartition("orders", number): number for number in range(3_000)}
    send(collector.endpoint, replace(batch(), lag=lag))
    found = {name: value for name, value in collector.newest().items() if name[0] == f"{PREFIX}lag_offsets"}
    assert len(found) == 3_000 and sum(found.values()) == sum(lag.values())


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_nobody_at_the_endpoint_is_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")  # time for a second try: the first says why
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    sender = OtlpSender(endpoint)
    sender.add(batch())
    flush(sender)
    sender.add(batch(1))
    sender.close()
    (line,) = warned(caplog)
    assert line.startswith(f"metrics could not be sent to {endpoint}/v1/metrics") and "refused" in line


def test_a_collector_that_comes_back_gets_the_sums(collector: OtlpCollector, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tiered_stream")
    collector.status = 403
    sender = OtlpSender(collector.endpoint)
    for number in range(3):
        collector.status = 200 if number == 2 else 403
        sender.add(batch(number))
        flush(sender)
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
        OtlpSender(endpoint)


@pytest.mark.parametrize("endpoint", ["http://user:canary@collector:4318", "http://collector:4318?key=canary"])
def test_a_secret_in_the_endpoint_is_refused_and_not_shown(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        OtlpSender(endpoint)
    assert "canary" not in str(refused.value)
