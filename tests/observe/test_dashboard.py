"""The Grafana dashboard asks for metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry

from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.locations.faulty_partitions import FaultyPartitions
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.prometheus_metrics import QueryMetrics
from tiered_stream.observe.read_metrics import ReadMetrics

DASHBOARD = Path(__file__).parents[2] / "conf" / "grafana" / "tiered_stream.json"
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def served(registry: CollectorRegistry) -> set[str]:
    return {family.name + suffix for family in registry.collect() for suffix in _SUFFIXES[family.type]}


def targets() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_panels_show_landed_rows_and_dead_letters_by_their_tables() -> None:
    """With the labels that a query's metrics have."""
    metrics = QueryMetrics()
    landed = (LandedRows("orders", 5, 2, "dead"),)
    metrics.add(MicroBatch("q", "id", 1, "2026-01-01T00:00:00Z", 7, 1.0, 7.0, ReadMetrics(), {}, tables=landed))
    labels = {
        sample.name: set(sample.labels)
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.labels.get("table")
    }
    assert set(labels) == {"tiered_stream_query_landed_rows_total", "tiered_stream_query_dead_letters_total"}
    for name, own in labels.items():
        (expression,) = (expression for expression in targets() if name in expression)
        (shown,) = re.findall(r"sum by \(([^)]*)\)", expression)
        assert set(shown.split(", ")) == own


def test_every_panel_asks_for_metrics_that_queries_or_the_gateway_serve() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    gateway = GatewayMetrics().registry
    FaultyPartitions(gateway)
    known = served(QueryMetrics().registry) | served(gateway)
    asked = {
        panel["title"]: set(re.findall(r"tiered_stream_\w+", target["expr"]))
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }
    assert len(asked) >= 14 and all(asked.values())
    assert {name for names in asked.values() for name in names} <= known
    (variable,) = (each for each in dashboard["templating"]["list"] if each["name"] == "query")
    assert set(re.findall(r"tiered_stream_\w+", variable["query"]["query"])) <= known
