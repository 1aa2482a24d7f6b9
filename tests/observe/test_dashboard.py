"""The Grafana dashboard asks for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.observe.query_metrics import QueryMetrics

DASHBOARD = Path(__file__).parents[2] / "conf" / "grafana" / "tiered_stream.json"
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def served(registry: CollectorRegistry) -> set[str]:
    return {family.name + suffix for family in registry.collect() for suffix in _SUFFIXES[family.type]}


def test_every_panel_asks_for_metrics_that_queries_or_the_gateway_serve() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    known = served(QueryMetrics().registry) | served(GatewayMetrics().registry)
    asked = {
        panel["title"]: set(re.findall(r"tiered_stream_\w+", target["expr"]))
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }
    assert len(asked) >= 12 and all(asked.values())
    assert {name for names in asked.values() for name in names} <= known
    (variable,) = (each for each in dashboard["templating"]["list"] if each["name"] == "query")
    assert set(re.findall(r"tiered_stream_\w+", variable["query"]["query"])) <= known
