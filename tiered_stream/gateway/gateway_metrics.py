"""Prometheus metrics of the gateway."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX = "tiered_stream_gateway"


class GatewayMetrics:
    """Prometheus metrics of one gateway. `registry` has all of them, and one more that `FaultyPartitions` registers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"namespace": PREFIX, "registry": self.registry}
        counter: Callable[..., Counter] = partial(Counter, **common)
        self.connections = Gauge("connections", "Client connections that are open.", **common)
        self.accepted = counter("accepted_connections", "Client connections that were accepted.")
        self.closed = counter("closed_connections", "Client connections that ended, and why.", ["reason"])
        self.requests = counter("requests", "Requests, by what became of their response.", ["handling"])
        self.bytes = counter("bytes", "Bytes passed on.", ["direction"])
        self.partitions = counter("located_partitions", "Partitions in location requests, by result.", ["result"])
        self.location_seconds = Histogram(
            "location_seconds", "Seconds from a location request to its response, with the broker's share.", **common
        )
        self.segments = counter("named_segments", "Segments in newly encoded responses; cached responses do not count.")
        self.failed_segments = counter("failed_segments", "Segments left to the brokers because of a failure.")
        self.storage_requests = counter("storage_requests", "Requests to the storage, for indexes and batches.")
        self.signed = counter("signed_locations", "Signed locations that were made.")
