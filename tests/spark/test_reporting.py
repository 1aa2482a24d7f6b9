"""What streaming queries of a session do and cost, told by lines, Prometheus and OTLP, whichever way they write."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.request import urlopen

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from tests.delta.archive import LONG, everything, options
from tests.observe.otlp_collector import OtlpCollector
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import run_program
from tests.spark.abilities import REPORTED_LAG
from tiered_stream import land, report_queries
from tiered_stream.errors import ConfigurationError
from tiered_stream.spark import reporting
from tiered_stream.spark.report_addresses import session_addresses
from tiered_stream.spark.reporting import QueryReports

PREFIX = "tiered_stream_query_"


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as made:
        yield made


@pytest.fixture
def reports(spark: SparkSession, collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryReports]:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    with report_queries(spark, lines="json", prometheus="127.0.0.1:0", otlp=collector.endpoint) as made:
        yield made


def scraped(reports: QueryReports) -> dict[tuple[str, ...], float]:
    """Each figure, by its name and the values of its labels in the order of the labels' names."""
    with urlopen(f"http://127.0.0.1:{reports.port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (each.name.removeprefix(PREFIX), *dict(sorted(each.labels.items())).values()): each.value
        for family in families
        for each in family.samples
    }


def run_until(reports: QueryReports, query: object, name: str, rows: int) -> dict[tuple[str, ...], float]:
    """The figures when all rows are told of; the query goes on until then: those that have ended have none."""
    wait_until(lambda: scraped(reports).get(("rows_total", name)) == rows, f"{rows} rows of {name}", pause=0.2)
    figures = scraped(reports)
    query.stop()  # type: ignore[attr-defined]
    wait_until(lambda: ("rows_total", name) not in scraped(reports), f"the end of {name}", pause=0.2)
    return figures


@pytest.mark.slow
def test_queries_of_both_lanes_and_of_ones_own_are_told_of(
    spark: SparkSession,
    reports: QueryReports,
    collector: OtlpCollector,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rows = everything(LONG).num_rows
    given = options(LONG, {"maxOffsetsPerTrigger": "10000"})
    for name in ("direct", "spark", "own"):
        checkpoint = str(tmp_path / f"{name} checkpoint")
        if name == "own":
            read = spark.readStream.format("tiered_stream").options(**given).load()
            writer = read.writeStream.format("noop").queryName(name).option("checkpointLocation", checkpoint)
            query = writer.trigger(processingTime="0 seconds").start()
        else:
            table = str(tmp_path / name)
            query = land(
                spark, options=given, table=table, checkpoint=checkpoint, trigger="0 seconds", lane=name, name=name
            )
        figures = run_until(reports, query, name, rows)
        assert figures["storage_bytes_total", name] > 100_000
        assert figures["broker_bytes_total", name] == 0
        if REPORTED_LAG.present:
            assert figures["lag_offsets", "0", name, LONG] == figures["lag_seconds", name] == 0
        assert figures["decode_seconds_total", name] > 0
        requests = figures["storage_request_seconds_count", name]
        assert figures["storage_request_seconds_bucket", "+Inf", name] == requests > 0
    for name in ("direct", "spark", "own"):
        wait_until(lambda: collector.newest().get((f"{PREFIX}rows", name)) == rows, f"{rows} rows sent of {name}")  # noqa: B023
        sent = collector.newest()
        assert sent[f"{PREFIX}storage_bytes", name] > 100_000
        assert not REPORTED_LAG.present or sent[f"{PREFIX}lag_offsets", "0", name, LONG] == 0
    lines = [orjson.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    told = [line for line in lines if line.get("event") == "micro-batch"]
    for name in ("direct", "spark", "own"):
        of_query = [line for line in told if line["query"] == name]
        assert sum(line["rows"] for line in of_query) == rows
        assert [line["batch_id"] for line in of_query] == sorted(line["batch_id"] for line in of_query)
        if REPORTED_LAG.present:
            assert of_query[-1]["lag"] == {LONG: {"0": 0}} and of_query[-1]["lag_seconds"] == 0
            assert of_query[0]["lag_offsets"] > 0 and of_query[0]["lag_seconds"] > 0
        else:
            assert {line["lag"] for line in of_query} == {None}
        assert of_query[0]["storage_seconds_p50"] <= of_query[0]["storage_seconds_p99"]


_WITHOUT_CLOSE = """
import sys
from tests.delta.archive import LONG, options
from tests.rigs.stack.spark import spark_session
from tiered_stream import report_queries

spark = spark_session("reports at the exit")
report_queries(spark, lines="json")
rows = spark.readStream.format("tiered_stream").options(**options(LONG)).load()
writer = rows.writeStream.format("noop").option("checkpointLocation", sys.argv[1]).trigger(availableNow=True)
writer.start().awaitTermination()
"""


@pytest.mark.starts_spark
def test_a_program_that_ends_without_close_reports_its_last_micro_batch(tmp_path: Path) -> None:
    ended = run_program(_WITHOUT_CLOSE, str(tmp_path))
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr
    lines = [orjson.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    assert sum(line["rows"] for line in lines if line.get("event") == "micro-batch") == everything(LONG).num_rows


def test_a_stream_that_was_loaded_before_is_named_in_a_warning(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.readStream.format("tiered_stream").options(**options(LONG)).load()
    with report_queries(spark):
        writer = rows.writeStream.format("noop").queryName("early").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert [line for line in caplog.messages if "query early is not reported" in line and "before load()" in line]
    assert "early:" not in capfd.readouterr().err


def test_reports_that_are_nested_all_get_what_runs_while_they_are_open(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(name: str) -> None:
        rows = spark.readStream.format("tiered_stream").options(**options(LONG)).load()
        writer = rows.writeStream.format("noop").queryName(name).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()

    with report_queries(spark, lines="text"):
        with report_queries(spark, lines="json"):
            run("both")
        run("outer")
    run("nobody")
    lines = capfd.readouterr().err.splitlines()
    assert [name for name in ("both", "outer", "nobody") if any(line.startswith(f"{name}: ") for line in lines)] == [
        "both", "outer",
    ]  # fmt: skip
    assert [orjson.loads(line)["query"] for line in lines if line.startswith('{"event"')] == ["both"]
    assert not [line for line in caplog.messages if "is not reported" in line]


def test_the_token_of_reports_is_in_no_setting_of_the_session(spark: SparkSession) -> None:
    with report_queries(spark, lines="none"):
        (address,), settings = session_addresses(spark), spark.conf.getAll
        assert address.place in settings.values()
        assert not any(address.token.hex() in value for value in settings.values())
    assert session_addresses(spark) == ()


def test_reports_that_cannot_begin_leave_neither_a_listener_nor_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {}
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__, unset=settings.pop)
    session: Any = SimpleNamespace(conf=conf, streams=Mock())
    monkeypatch.setattr(reporting, "has_read_limits", Mock())
    monkeypatch.setattr(reporting, "register", Mock(side_effect=[ConfigurationError("no source"), None]))
    with pytest.raises(ConfigurationError):
        report_queries(session, lines="none")
    session.streams.addListener.assert_called_once()
    assert session.streams.removeListener.call_args_list == session.streams.addListener.call_args_list
    assert not settings


def test_an_address_that_is_taken_costs_no_query(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with report_queries(spark, lines="none", prometheus=address) as reports:
            assert reports.port is None
            query = land(
                spark, options=options(LONG), table=str(tmp_path / "table"), checkpoint=str(tmp_path / "checkpoint")
            )
            query.awaitTermination()
            assert query.exception() is None
    assert [line for line in caplog.messages if "metrics are not served" in line and address in line]


def test_a_package_that_is_missing_costs_no_query(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tiered_stream.observe.open_telemetry", None)
    with report_queries(spark, lines="none", otlp="http://127.0.0.1:4318"):
        pass
    assert [line for line in caplog.messages if "pip install 'tiered-stream[otel]'" in line]


@pytest.mark.parametrize(
    "given", [{"lines": "yaml"}, {"prometheus": "9404"}, {"prometheus": "host:port"}, {"otlp": "h:4"}]
)
def test_what_cannot_be_meant_is_refused(spark: SparkSession, given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given.values()))):
        report_queries(spark, **given)  # type: ignore[arg-type]
