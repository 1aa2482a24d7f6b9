"""A collector that takes OTLP over HTTP, read by the protocol's own messages."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from tests.local_http import Answer, LocalHttp, respond

PATH = "/v1/metrics"


class OtlpCollector(LocalHttp):
    """A context manager; `requests` is what came in, `status` what it answers, `headers` those of the last request."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: dict[str, str] = {}
        super().__init__(self._handler())

    @property
    def endpoint(self) -> str:
        return self.url

    def metrics(self) -> Iterator[Metric]:
        """All that came in, in order."""
        for request in list(self.requests):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    yield from scope.metrics

    def newest(self) -> dict[tuple[str, ...], float]:
        """The last value of each number, by its metric's name and its attributes in the order of their names."""
        return {
            (metric.name, *(text for _, text in attributes(point))): point.as_double or point.as_int
            for metric in self.metrics()
            for point in (*metric.sum.data_points, *metric.gauge.data_points)
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                taken = self.path == PATH and self.headers["Content-Type"] == "application/x-protobuf"
                collector.headers = dict(self.headers)
                if taken and collector.status == 200:
                    collector.requests.append(ExportMetricsServiceRequest.FromString(body))
                content = ExportMetricsServiceResponse().SerializeToString()
                respond(self, Answer(collector.status if taken else 404, content))

        return Handler


def attributes(point: NumberDataPoint) -> list[tuple[str, str]]:
    return sorted((each.key, each.value.string_value) for each in point.attributes)
