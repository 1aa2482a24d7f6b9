"""`tiered-stream watch`, over HTTP as a driver serves its metrics."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from prometheus_client import CollectorRegistry, Counter
from typer.testing import CliRunner

from tests.local_http import Answer, LocalHttp, respond
from tiered_stream.cli import app
from tiered_stream.model import TopicPartition
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.observe.progress import MicroBatch
from tiered_stream.observe.prometheus_endpoint import Monitor
from tiered_stream.observe.prometheus_metrics import DEAD_LETTERS, PREFIX, QueryMetrics
from tiered_stream.observe.read_metrics import ReadMetrics


def batch(name: str, number: int, lag: int, tables: tuple[LandedRows, ...] | None = None) -> MicroBatch:
    cost = ReadMetrics(records=1500, remote_fetch_bytes=3 << 20, fallbacks_read_timeout=2)
    lags = {TopicPartition("orders", 0): lag, TopicPartition("orders", 1): 5}
    return MicroBatch(
        name, f"id of {name}", number, "2026-01-01T00:00:00Z", 1500, 2.5, 600.0, cost, lags, tables=tables
    )


@pytest.fixture
def driver() -> Iterator[tuple[str, QueryMetrics]]:
    metrics = QueryMetrics()
    monitor = Monitor("127.0.0.1", 0, metrics.registry, str)
    yield f"127.0.0.1:{monitor.port}", metrics
    monitor.close()


def watch(*arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["watch", *arguments], env={"COLUMNS": "140"})
    return ended.exit_code, ended.output


def test_each_query_is_a_row_with_its_sums_and_its_last_micro_batch(driver: tuple[str, QueryMetrics]) -> None:
    address, metrics = driver
    for number in (3, 4):
        metrics.add(batch("orders", number, lag=7))
    code, shown = watch(address, "--once")
    assert code == 0
    row = next(line for line in shown.splitlines() if "orders" in line)
    cells = row.replace("│", " ").split()
    assert cells[:10] == ["orders", "4", "3,000", "-", "600", "2.5", "6.0", "0.0", "4", "12"]


def test_dead_letters_are_counted_and_their_tables_named(driver: tuple[str, QueryMetrics]) -> None:
    address, metrics = driver
    metrics.add(batch("clean", 1, 0, (LandedRows("clean", 1500),)))
    for tables in ((LandedRows("a", 1497, 2, "s3a://lake/dead"), LandedRows("b", 0, 1, "s3a://lake/other")),) * 2:
        metrics.add(batch("typed", 1, 0, tables))
    metrics.add(batch("aside", 1, 0, (LandedRows("a", 9, 1, "s3a://lake/dead"),)))
    code, shown = watch(address, "--once")
    rows = {cells[0]: cells[3] for line in shown.splitlines() if len(cells := line.replace("│", " ").split()) > 8}
    assert (code, rows["clean"], rows["typed"]) == (0, "0", "6")
    assert shown.splitlines()[-3:] == [
        "aside: 1 dead letter in s3a://lake/dead",
        "typed: 4 dead letters in s3a://lake/dead",
        "typed: 2 dead letters in s3a://lake/other",
    ]
    _, text = watch(address, "--once", "--json")
    assert [json.loads(line)["dead_letters"] for line in text.splitlines()] == [1, 0, 6]


def test_for_programs_there_is_a_line_of_json_for_each_query(driver: tuple[str, QueryMetrics]) -> None:
    address, metrics = driver
    metrics.add(batch("one", 1, lag=0))
    metrics.add(batch("two", 2, lag=1))
    metrics.add(batch("gone", 2, lag=1))
    metrics.ended("id of gone")
    code, shown = watch(f"http://{address}/metrics", "--once", "--json")
    lines = [json.loads(line) for line in shown.splitlines()]
    assert (code, [line["query"] for line in lines]) == (0, ["one", "two"])
    assert [(line["rows"], line["batch_id"], line["lag_offsets"]) for line in lines] == [(1500, 1, 5), (1500, 2, 6)]


def test_a_driver_without_queries_says_so(driver: tuple[str, QueryMetrics]) -> None:
    code, shown = watch(driver[0], "--once")
    assert code == 0 and "no query " in " ".join(shown.split())


def test_where_nobody_answers_one_line_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    code, shown = watch(f"http://me:hunter2@{address}", "--once")
    assert (code, len(shown.splitlines())) == (1, 1) and address in shown and "hunter2" not in shown
    assert ": HTTPConnection(" in shown  # urllib3's name of it


def test_another_server_is_no_driver() -> None:
    monitor = Monitor("127.0.0.1", 0, CollectorRegistry(), str)
    code, shown = watch(f"127.0.0.1:{monitor.port}/nowhere", "--once")
    monitor.close()
    assert code == 1 and "404" in shown


@pytest.mark.parametrize(
    "body",
    [
        b'a{query="b",\t="c"} 1\n',
        b'a{query="b"} 1' + b"0" * 400 + b"\n",
        b'a{query="' + b'\\"' * (1 << 20) + b'"} 1\n',
    ],
)
def test_a_response_that_is_no_metrics_is_one_error_soon(body: bytes) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self, Answer(200, body))

    with LocalHttp(Stranger) as server:
        code, shown = watch(server.url, "--once")
    assert (code, len(shown.splitlines())) == (1, 1) and f"{server.url}/metrics returns no metrics" in shown


@pytest.mark.parametrize("address", ["ftp://driver", "http://", "", "[::1:9090"])
def test_what_is_no_address_is_refused(address: str) -> None:
    code, shown = watch(address, "--once")
    assert code == 2 and "not a host:port" in shown


def test_dead_letters_of_a_table_that_is_not_named_are_counted_too() -> None:
    registry = CollectorRegistry()
    Counter(f"{PREFIX}{DEAD_LETTERS}", "", ["query"], registry=registry).labels("orders").inc(3)
    monitor = Monitor("127.0.0.1", 0, registry, str)
    code, shown = watch(f"127.0.0.1:{monitor.port}", "--once", "--json")
    monitor.close()
    assert code == 0, shown
    assert json.loads(shown)["dead_letters"] == 3
