"""`tiered-stream ingest`, in a process of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.cli.running import words
from tests.cli.test_spark_commands import command, settings_file, start
from tests.delta.archive import LONG, everything, landed
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic
from tiered_stream.cli import app
from tiered_stream.ingest import ingest_run
from tiered_stream.ingest.ingest_run import Outcome


@pytest.mark.starts_spark
def test_topics_are_landed_without_spark_submit(tmp_path: Path) -> None:
    words = ["--settings", settings_file(tmp_path), "--table", str(tmp_path / "table")]
    process = start(command(*words, "--checkpoint", str(tmp_path / "checkpoint"), name="ingest"))
    shown, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "direct lane" in shown
    assert landed(tmp_path / "table").num_rows == everything(LONG).num_rows


def nobody_listens(folder: Path, servers: str) -> list[str]:
    settings = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "t",
        "ingest.table": str(folder / "table"),
        "ingest.checkpointLocation": str(folder / "checkpoint"),
    }
    return words(settings)


SOON = ("--option", "kafka.default.api.timeout.ms=500")


@pytest.mark.parametrize("name", ["ingest", "replay"])
def test_a_broker_that_is_down_ends_it_in_one_line_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def start_spark(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start_spark)
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    times = ["--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"] if name == "replay" else []
    ended = CliRunner().invoke(app, [name, *nobody_listens(tmp_path, servers), *SOON, *times])
    (line,) = ended.output.splitlines()
    assert ended.exit_code == 1
    assert f"bootstrap server {servers}: " in line and "connection refused" in line


def no_run(*_: object) -> Outcome:
    raise AssertionError("the job was started")


@pytest.mark.parametrize("file", ["file/metrics.json", "."])
def test_a_metrics_file_that_cannot_be_written_is_refused_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(ingest_run, "run", no_run)
    ended = CliRunner().invoke(app, ["ingest", "--metrics-file", str(tmp_path / file)])
    assert ended.exit_code == 2, ended.exception
    assert "--metrics-file" in ended.output


@pytest.mark.parametrize(("stopped_by", "code"), [(0, 1), (signal.SIGTERM, 143)])
def test_a_metrics_file_that_cannot_be_written_in_the_end_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_by: int, code: int
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def run(*_: object) -> Outcome:
        folder.rmdir()
        return Outcome(stopped_by=stopped_by)

    monkeypatch.setattr(ingest_run, "run", run)
    ended = CliRunner().invoke(app, ["ingest", "--metrics-file", str(folder / "metrics.json")])
    assert (ended.exit_code, type(ended.exception)) == (code, SystemExit)


@pytest.mark.stack
def test_an_unknown_topic_ends_it_in_one_line_with_the_near_names(
    stack: TieredStack, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SparkSession.Builder, "getOrCreate")
    create_tiered_topic(stack.broker, topic)
    given = nobody_listens(tmp_path, stack.bootstrap_servers)
    ended = CliRunner().invoke(app, ["ingest", *given, "--option", f"subscribe={topic}x"])
    (line,) = ended.output.splitlines()
    assert ended.exit_code == 2
    assert f"topic: '{topic}x'" in line
    assert f"name: '{topic}'" in line
