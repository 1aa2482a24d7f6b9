"""Topics are read by what `pip install tiered-stream` installs, without the packages of its extras."""

from __future__ import annotations

import json

import pytest

from tests.archives import PLAIN, archive_options
from tests.delta.archive import ODD, everything, options
from tests.forking_python import COMMAND
from tests.without_packages import run_without

EXTRAS = (
    "pyspark", "py4j", "pandas", "google.auth", "google.protobuf", "grpc_tools", "deltalake", "delta",
    "confluent_kafka", "opentelemetry", "fastavro", "Crypto", "hdfs_native",
)  # fmt: skip
ENCRYPTED = "aiven-zstd-aesgcm"

SCAN = """
from tiered_stream import scan
print(sum(batch.num_rows for batch in scan(json.loads(sys.argv[1]))))
"""
ATTRIBUTE = """
import tiered_stream
try:
    getattr(tiered_stream, sys.argv[1])()
except tiered_stream.errors.ConfigurationError as error:
    print(error)
"""
IMPORT_ALL = """
import importlib, pkgutil
import tiered_stream
for module in pkgutil.walk_packages(tiered_stream.__path__, "tiered_stream.", onerror=lambda name: None):
    if module.name != "tiered_stream.__main__":
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(module.name)
"""
OF_SPARK = (
    "cli.spark_commands", "delta.", "doctor.table_checks", "ingest.", "replays.", "spark.",
    "verification.latest_comparison", "verification.latest_rows_source", "verification.record_comparison",
    "verification.scope", "verification.statistics_comparison", "verification.sums_source",
    "verification.verify_table",
)  # fmt: skip
"""The modules, or by a dot the packages, that nobody imports without Spark."""


def given(settings: dict[str, str]) -> list[str]:
    """Arguments of a command."""
    return [text for name, value in settings.items() for text in ("--option", f"{name}={value}")]


def test_topics_are_read_without_the_packages_of_extras() -> None:
    done = run_without(EXTRAS, SCAN, json.dumps(options(ODD)))
    assert done.stdout == f"{everything(ODD).num_rows}\n", done.stderr


def test_no_module_needs_spark_but_those_that_are_for_spark() -> None:
    done = run_without(("pyspark", "py4j"), IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    names = [line.removeprefix("tiered_stream.") for line in done.stdout.splitlines()]
    assert names
    assert [name for name in names if not name.startswith(OF_SPARK)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["cat", *given(archive_options(PLAIN)), "--count", "1"],
        ["plan", *given(archive_options(PLAIN))],
        ["segments", *given(archive_options(PLAIN))],
        ["doctor", *given(archive_options(PLAIN))],
        *([command, "--help"] for command in ("export", "gateway", "lag", "warm", "watch", "ingest", "replay")),
        ["verify", "--help"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_run_without_the_packages_of_extras(arguments: list[str]) -> None:
    done = run_without(EXTRAS, COMMAND, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_doctor_of_a_job_that_lands_names_spark_as_missing_and_looks_at_the_rest() -> None:
    job = {**archive_options(PLAIN), "ingest.table": "/tmp/table", "ingest.checkpointLocation": "/tmp/checkpoint"}
    done = run_without(("pyspark", "py4j"), COMMAND, "doctor", "--json", *given(job))
    findings = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert findings["settings"]["status"] == findings["segment objects"]["status"] == "ok"
    assert "tiered-stream[spark,delta]" in findings["Python and packages"]["fix"]
    assert findings["table"]["status"] == "skipped"


@pytest.mark.parametrize(
    "arguments",
    [
        ["ingest"],
        ["replay", "--from", "2026-01-01", "--into", "/tmp/table"],
        ["verify"],
        ["redrive"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_for_spark_names_the_extra(arguments: list[str]) -> None:
    done = run_without(("pyspark", "py4j"), COMMAND, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'tiered-stream[spark]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["land", "register", "replay", "report_queries", "verify"])
def test_a_function_for_spark_names_itself_and_the_extra(name: str) -> None:
    done = run_without(("pyspark", "py4j"), "import tiered_stream.errors" + ATTRIBUTE, name)
    assert done.stdout.startswith(f"tiered_stream.{name} needs the package "), done.stderr
    assert "pip install 'tiered-stream[spark]'" in done.stdout


@pytest.mark.parametrize(
    ("program", "user"),
    [
        ("delta.redrive.redrive_run as m; m.redrive(None, {}, 't', m.DeadLetterFilter(None, None, None))", "a redrive"),
        ("delta.landing.spark_rows as m; m.classify_records(None, {}, None, None)", "a typed table in the Spark lane"),
    ],
    ids=["redrive", "typed table"],
)
def test_where_spark_needs_pandas_the_extra_is_named(program: str, user: str) -> None:
    done = run_without(("pandas",), f"import tiered_stream.{program}")
    assert f"ConfigurationError: {user} needs the package pandas" in done.stderr
    assert "pip install 'tiered-stream[spark]'" in done.stderr


def test_an_encrypted_segment_names_the_extra_that_decrypts_it() -> None:
    done = run_without(("Crypto",), COMMAND, "cat", *given(archive_options(ENCRYPTED)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "an encrypted segment needs the package pycryptodome, which is not installed: "
        "pip install 'tiered-stream[aiven]'\n"
    )


def test_the_doctor_names_the_extra_that_decrypts_segments() -> None:
    done = run_without(("Crypto",), COMMAND, "doctor", "--json", *given(archive_options(ENCRYPTED)))
    failed = [each for each in json.loads(done.stdout)["findings"] if each["status"] == "failed"]
    assert failed
    assert all("tiered-stream[aiven]" in each["found"] for each in failed), failed
