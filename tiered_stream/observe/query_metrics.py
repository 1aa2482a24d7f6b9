"""Sums of the work and the cost of streaming queries, as Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tiered_stream.observe.metrics import LATENCY_BOUNDS_MS, ReadMetrics, within
from tiered_stream.observe.progress import MicroBatch

PREFIX = "tiered_stream_query_"


@dataclass(frozen=True, slots=True)
class _Query:
    """Sums of a query after a micro-batch. The object never changes, so that a scrape sees sums of one moment."""

    last: MicroBatch
    cost: ReadMetrics = field(default_factory=ReadMetrics)
    rows: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)

    def after(self, batch: MicroBatch) -> _Query:
        """Return the sums with one more micro-batch."""
        cost = replace(self.cost)
        cost.add(batch.cost)
        fallbacks = Counter(self.fallbacks)
        fallbacks.update(batch.fallbacks)
        return _Query(batch, cost, self.rows + batch.rows, fallbacks)


class QueryMetrics(Collector):
    """Prometheus collector of the sums of each running query, with its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._queries: dict[str, _Query] = {}
        self.registry.register(self)

    def add(self, batch: MicroBatch) -> None:
        """Add a finished micro-batch to its query's sums."""
        self._queries[batch.query_id] = (self._queries.get(batch.query_id) or _Query(batch)).after(batch)

    def ended(self, query_id: str) -> None:
        """Remove the sums of a query that has ended."""
        self._queries.pop(query_id, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that `/metrics` shows. The label `query` is the query's name, or its id without a name."""
        return self._families({query.last.query: query for query in list(self._queries.values())})

    def _families(self, queries: dict[str, _Query]) -> Iterator[Metric]:
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, text, labels=["query"])
            for label, query in queries.items():
                counter.add_metric([label], value(query))
            yield counter
        for name, text, read in _GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=["query"])
            for label, query in queries.items():
                if (now := read(query.last)) is not None:
                    gauge.add_metric([label], now)
            yield gauge
        yield self._fallbacks(queries)
        yield self._lag(queries)
        yield self._latencies(queries)

    def _fallbacks(self, queries: dict[str, _Query]) -> Metric:
        family = CounterMetricFamily(
            f"{PREFIX}fallbacks", "Splits that were left to the brokers.", labels=["query", "reason"]
        )
        for label, query in queries.items():
            for reason, count in query.fallbacks.items():
                family.add_metric([label, reason], count)
        return family

    def _lag(self, queries: dict[str, _Query]) -> Metric:
        labels = ["query", "topic", "partition"]
        family = GaugeMetricFamily(f"{PREFIX}lag_offsets", "Offsets that are still to be read.", labels=labels)
        for label, query in queries.items():
            for partition, lag in (query.last.lag or {}).items():
                family.add_metric([label, partition.topic, str(partition.partition)], lag)
        return family

    def _latencies(self, queries: dict[str, _Query]) -> Metric:
        name, text = f"{PREFIX}storage_request_seconds", "How long requests to storage took."
        family = HistogramMetricFamily(name, text, labels=["query"])
        for label, query in queries.items():
            cost = query.cost
            buckets = [(str(bound / 1000), getattr(cost, within(bound))) for bound in LATENCY_BOUNDS_MS]
            buckets.append(("+Inf", cost.remote_fetch_requests))
            family.add_metric([label], buckets, cost.remote_fetch_latency_total)
        return family


_COUNTERS: tuple[tuple[str, str, Callable[[_Query], float]], ...] = (
    ("rows", "Rows that were read.", lambda query: query.rows),
    ("storage_bytes", "Bytes that storage gave.", lambda query: query.cost.remote_fetch_bytes),
    ("storage_errors", "Requests to storage that failed.", lambda query: query.cost.remote_fetch_errors),
    ("broker_bytes", "Bytes that brokers gave.", lambda query: query.cost.broker_fetch_bytes),
    ("broker_requests", "Fetches that brokers answered.", lambda query: query.cost.broker_fetch_requests),
    ("decode_seconds", "Time of tasks in which they decoded.", lambda query: query.cost.decode_seconds),
)
_GAUGES: tuple[tuple[str, str, Callable[[MicroBatch], float | None]], ...] = (
    ("batch_id", "The last micro-batch.", lambda batch: batch.batch_id),
    ("batch_seconds", "How long the last micro-batch took.", lambda batch: batch.seconds),
    ("rows_per_second", "Rows a second of the last micro-batch.", lambda batch: batch.rows_per_second),
    (
        "lag_seconds",
        "The age of the newest record that was read, where some are left to read.",
        lambda batch: batch.lag_seconds,
    ),
)
