"""Prometheus metrics of the gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class GaugeByTopic(Collector):
    """Gauge with the label `topic` whose values are replaced all at once: no scrape mixes old and new values."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._values: Mapping[str, int] = {}

    def replace(self, values: Mapping[str, int]) -> None:
        """Replace the gauge's values by `values`, which has the value by topic; other topics are no longer shown."""
        self._values = dict(values)

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._text, labels=["topic"])
        for topic, value in self._values.items():
            family.add_metric([topic], value)
        yield family


class GatewayMetrics:
    """Prometheus metrics of one gateway, in a `CollectorRegistry` (`registry`) with no other metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=self.registry), partial(Counter, registry=self.registry)
        prefix = "tiered_stream_gateway_"
        self.connections = gauge(f"{prefix}connections", "Client connections that are open.")
        self.accepted = counter(f"{prefix}accepted_connections", "Client connections that were accepted.")
        self.closed = counter(f"{prefix}closed_connections", "Client connections that ended, and why.", ["reason"])
        self.requests = counter(f"{prefix}requests", "Requests, by what became of their response.", ["handling"])
        self.bytes = counter(f"{prefix}bytes", "Bytes passed on.", ["direction"])
        self.partitions = counter(
            f"{prefix}located_partitions", "Partitions in location requests, by result.", ["result"]
        )
        self.location_seconds = Histogram(
            f"{prefix}location_seconds",
            "Seconds from a location request to its response, with the broker's share.",
            registry=self.registry,
        )
        self.segments = counter(
            f"{prefix}named_segments", "Segments in newly encoded responses; cached responses do not count."
        )
        self.failed_segments = counter(f"{prefix}failed_segments", "Segments left to the brokers because of a failure.")
        self.unlocated = GaugeByTopic(
            f"{prefix}unlocated_partitions",
            "Partitions left to the brokers, because their leader or the metadata topic cannot be asked or read.",
        )
        self.registry.register(self.unlocated)
        self.storage_requests = counter(
            f"{prefix}storage_requests", "Requests to the storage, for indexes and batches."
        )
        self.signed = counter(f"{prefix}signed_locations", "Signed locations that were made.")
