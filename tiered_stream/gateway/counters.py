"""What the gateway counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class GatewayMetrics:
    """Counters of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.connections = Gauge(
            "tiered_stream_gateway_connections", "Client connections that are open.", registry=registry
        )
        self.accepted = Counter(
            "tiered_stream_gateway_accepted_connections", "Client connections that were accepted.", registry=registry
        )
        self.closed = Counter(
            "tiered_stream_gateway_closed_connections",
            "Client connections that ended, and why.",
            ["reason"],
            registry=registry,
        )
        self.requests = Counter(
            "tiered_stream_gateway_requests", "Requests, by what became of their response.", ["handling"],
            registry=registry,
        )  # fmt: skip
        self.bytes = Counter("tiered_stream_gateway_bytes", "Bytes passed on.", ["direction"], registry=registry)
        self.partitions = Counter(
            "tiered_stream_gateway_located_partitions",
            "Partitions in location requests: answered, refused by the broker, or left to it because of a failure.",
            ["result"],
            registry=registry,
        )
        self.location_seconds = Histogram(
            "tiered_stream_gateway_location_seconds", "From a location request to its answer.", registry=registry
        )
        self.segments = Gauge(
            "tiered_stream_gateway_named_segments", "Segments that answers named, those kept from before left out.",
            registry=registry,
        )  # fmt: skip
        self.failed_segments = Gauge(
            "tiered_stream_gateway_failed_segments", "Segments left to the brokers because of a failure.",
            registry=registry,
        )  # fmt: skip
        self.signed = Gauge(
            "tiered_stream_gateway_signed_locations", "Signed locations that were made.", registry=registry
        )
