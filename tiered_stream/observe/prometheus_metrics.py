"""Prometheus metrics of streaming queries: sums of rows and of the cost of reading, and the last micro-batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tiered_stream.observe.landed_rows import LandedRows, summed
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.read_metrics import LATENCY_BOUNDS_MS, ReadMetrics, within

PREFIX = "tiered_stream_query_"
LANDED_ROWS, DEAD_LETTERS = "landed_rows", "dead_letters"
LATENCIES = f"{PREFIX}storage_request_seconds", "How long requests to storage took."
"""Name and description of the histogram of latencies."""
DEAD_LETTER_TABLE = "dead_letter_table"
"""Label of the metric `DEAD_LETTERS`: the table that has the dead letters."""


@dataclass(frozen=True, slots=True)
class QuerySums:
    """Sums of one query's counters (`cost`) and rows, also by table, up to and including the micro-batch `last`.

    The object never changes, so that a scrape sees the sums of one moment.
    """

    last: MicroBatch
    cost: ReadMetrics = field(default_factory=ReadMetrics)
    rows: int = 0
    tables: tuple[LandedRows, ...] | None = None
    """Rows and dead letters that were committed, by table, or None if they are unknown."""

    def after(self, batch: MicroBatch) -> QuerySums:
        """Return the sums with `batch` added, which becomes the last micro-batch."""
        cost = replace(self.cost)
        cost.add(batch.cost)
        tables = self.tables if batch.tables is None else summed((*(self.tables or ()), *batch.tables))
        return QuerySums(batch, cost, self.rows + batch.rows, tables)


class QueryMetrics(Collector):
    """Prometheus collector of sums for each running query. `add` adds a finished micro-batch to its query's sums.

    The Prometheus registry `registry` has only this collector.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._queries: dict[str, QuerySums] = {}
        self.registry.register(self)

    def add(self, batch: MicroBatch) -> None:
        """Add a finished micro-batch to its query's sums."""
        self._queries[batch.query_id] = (self._queries.get(batch.query_id) or QuerySums(batch)).after(batch)

    def ended(self, query_id: str) -> None:
        """Remove the sums of the query, which has ended."""
        self._queries.pop(query_id, None)

    def sums(self) -> dict[str, QuerySums]:
        """Return the sums of each query by its name, or by its id if it has no name."""
        return {query.last.query: query for query in list(self._queries.values())}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that `/metrics` shows. The label `query` is the query's name, or its id if it has none."""
        return _families(self.sums())


def _families(queries: Mapping[str, QuerySums]) -> Iterator[Metric]:
    for kind, name, text, labels, figures in _FAMILIES:
        family = kind(PREFIX + name, text, labels=["query", *labels])
        for query_name, query in queries.items():
            for values, figure in figures(query).items():
                if figure is not None:
                    family.add_metric([query_name, *values], figure)
        yield family
    histogram = HistogramMetricFamily(*LATENCIES, labels=["query"])
    for query_name, query in queries.items():
        buckets = [(str(bound / 1000), getattr(query.cost, within(bound))) for bound in LATENCY_BOUNDS_MS]
        buckets.append(("+Inf", query.cost.remote_fetch_requests))
        histogram.add_metric([query_name], buckets, query.cost.remote_fetch_latency_total)
    yield histogram


def _landed(query: QuerySums) -> dict[tuple[str, ...], float | None]:
    rows: Counter[tuple[str, ...]] = Counter()
    for table in query.tables or ():
        rows[(table.table,)] += table.rows
    return {**rows}


_Figures = Callable[[QuerySums], Mapping[tuple[str, ...], float | None]]
"""Function that returns one metric's values for a query, by the values of the labels that follow the label `query`.

An unknown value is None.
"""
_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily
_FAMILIES: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, tuple[str, ...], _Figures], ...] = (
    (_COUNTER, "rows", "Rows that were read.", (), lambda query: {(): query.rows}),
    (_COUNTER, LANDED_ROWS, "Rows that were committed to a table.", ("table",), _landed),
    (_COUNTER, DEAD_LETTERS, "Dead letters of a table, by the table that has them.", ("table", DEAD_LETTER_TABLE),
     lambda query: {(at.table, at.dead_letter_table): at.dead_letters for at in query.tables or () if at.dead_letters}),
    (_COUNTER, "storage_bytes", "Bytes that storage gave.", (), lambda query: {(): query.cost.remote_fetch_bytes}),
    (_COUNTER, "storage_errors", "Requests to storage that failed.", (),
     lambda query: {(): query.cost.remote_fetch_errors}),
    (_COUNTER, "broker_bytes", "Bytes that brokers gave.", (), lambda query: {(): query.cost.broker_fetch_bytes}),
    (_COUNTER, "broker_requests", "Fetch requests with a response from a broker.", (),
     lambda query: {(): query.cost.broker_fetch_requests}),
    (_COUNTER, "filtered_records", "Records that ingest.where left out.", (),
     lambda query: {(): query.cost.filtered_records}),
    (_COUNTER, "decode_seconds", "Time of tasks in which they decoded.", (),
     lambda query: {(): query.cost.decode_seconds}),
    (_GAUGE, "batch_id", "The last micro-batch.", (), lambda query: {(): query.last.batch_id}),
    (_GAUGE, "batch_seconds", "How long the last micro-batch took.", (), lambda query: {(): query.last.seconds}),
    (_GAUGE, "rows_per_second", "Rows a second of the last micro-batch.", (),
     lambda query: {(): query.last.rows_per_second}),
    (_GAUGE, "lag_seconds", "The age of the newest record that was read, where some are left to read.", (),
     lambda query: {(): query.last.lag_seconds}),
    (_COUNTER, "fallbacks", "Splits that were left to the brokers.", ("reason",),
     lambda query: {(reason,): count for reason, count in query.cost.fallbacks.items()}),
    (_GAUGE, "lag_offsets", "Offsets that are still to be read.", ("topic", "partition"),
     lambda query: {(at.topic, str(at.partition)): lag for at, lag in (query.last.lag or {}).items()}),
)  # fmt: skip
