"""Reports of tasks: datagrams, with and without the run's token, and everything that shows their sums."""

from __future__ import annotations

import io
from dataclasses import asdict
from random import Random

import orjson
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.rigs.fuzz.mutation import below, one, spoiled_json
from tests.rigs.fuzz.target import Target
from tiered_stream.observe.driver_log import _name
from tiered_stream.observe.metrics_receiver import parse_datagram
from tiered_stream.observe.open_telemetry import _LatencyHistograms
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.prometheus_metrics import QueryMetrics
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.spark.reporting import BatchLines

TOKEN = bytes(range(16))
COUNTERS = {"micro_batch": ["query", 3], "part": "", **asdict(ReadMetrics())}
EXTREMES = (0, 1, 2**31, 2**48, 2**48 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, 0.5, 1e300, True, "1", None)
NAMES = ("", "query", "3f0c-1", "a\nmicro-batch 7 of query q: 0 rows read", "\x1b[31m", "q" * 3_000, "é", "\u2028", 7)


def report(random: Random) -> bytes:
    """A report with some counters and names that are extreme or hostile; sometimes its text is spoiled, too."""
    values: dict[str, object] = dict(COUNTERS)
    for _ in range(below(random, 6)):
        values[one(random, list(COUNTERS))] = one(random, EXTREMES)
    if random.random() < 0.3:
        values["micro_batch"] = [one(random, NAMES), one(random, EXTREMES)]
    if random.random() < 0.3:
        values["part"] = one(random, NAMES)
    return spoiled_json(random, values) if random.random() < 0.3 else orjson.dumps(values)


def count(data: bytes) -> None:
    """Take the bytes as a whole datagram, and as what follows the token; show the sum of many such reports."""
    assert parse_datagram(data, TOKEN) is None or data.startswith(TOKEN), "a report without the token is counted"
    found = parse_datagram(TOKEN + data, TOKEN)
    if found is None:
        return
    assert len(found.part) <= 36 and _name(found.micro_batch).isprintable(), "a name forges a line"
    show(found.metrics)


def show(counted: ReadMetrics) -> None:
    """Show the sum of 1,024 equal reports by a line for people, by JSON, and to Prometheus and OpenTelemetry."""
    cost = ReadMetrics()
    for _ in range(10):
        counted.add(counted)
    cost.add(counted)
    batch = MicroBatch("orders", "id", 3, "2026-11-22T19:00:00.000Z", 7, 2.0, 3.5, cost, None)
    lines = io.StringIO()
    for json in (True, False):
        BatchLines(json=json, out=lines).add(batch)
    as_json, text = lines.getvalue().splitlines()
    assert text.isprintable() and orjson.loads(as_json)["query"] == "orders"
    metrics = QueryMetrics()
    metrics.add(batch)
    assert list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    scope = ScopeMetrics(InstrumentationScope("tiered_stream"), [], "")
    empty = MetricsData([ResourceMetrics(Resource({}), [scope], "")])
    encode_metrics(_LatencyHistograms(is_delta=False).added_to(empty, metrics.sums())).SerializeToString()


TARGETS = (Target("reports", report, count, refusals=()),)
