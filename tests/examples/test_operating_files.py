"""The files of examples/operating/ agree with the product, as far as a machine without these schedulers can check."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tests.observe.test_dashboard import served
from tests.rigs.stack.build import ROOT
from tiered_stream.delta.settings.ingest_settings import JOB_SETTINGS, STOP_TIMEOUT, check_names, source_options
from tiered_stream.observe.prometheus_metrics import QueryMetrics
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.settings_files import read_settings

FOLDER = ROOT / "examples" / "operating"
ALERTS, KUBERNETES, CRON, AIRFLOW, SERVICE, TIMER = (
    (FOLDER / name).read_text("utf-8")
    for name in (
        "alerts.yaml",
        "spark-application.yaml",
        "orders.cron",
        "airflow_dag.py",
        "tiered-stream-orders.service",
        "tiered-stream-orders.timer",
    )
)
STOP_S = int(STOP_TIMEOUT.default) // 1000
COMMAND = (
    "spark-submit --properties-file /etc/tiered-stream/spark.conf jobs/ingest_to_delta.py "
    "--settings /etc/tiered-stream/orders.properties"
)


def test_every_alert_asks_for_metrics_that_a_query_serves() -> None:
    expressions = re.findall(r"expr: '(.+)'", ALERTS)
    asked = [set(re.findall(r"tiered_stream_\w+", expression)) for expression in expressions]
    assert len(asked) == ALERTS.count("- alert: ") == 7
    assert all(asked) and set().union(*asked) <= served(QueryMetrics().registry)
    assert all(expression.count("(") == expression.count(")") for expression in expressions)


def test_every_scheduler_runs_the_command_of_the_quick_start() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert COMMAND.replace("/etc/tiered-stream/", "").removesuffix("orders.properties") in readme
    assert f" {COMMAND} 2>> " in CRON
    assert f"/bin/{COMMAND}\n" in SERVICE
    (given,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(AIRFLOW).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "INGEST"
    ]
    assert given == COMMAND
    (job,) = re.findall(r"mainApplicationFile: local:///opt/tiered_stream/(\S+)", KUBERNETES)
    assert (ROOT / job).is_file()


def test_the_settings_of_the_config_map_are_those_of_a_job(tmp_path: Path) -> None:
    block = re.search(r"^  orders\.properties: \|\n((?:    .*\n)+)", KUBERNETES, re.MULTILINE)
    assert block
    (tmp_path / "orders.properties").write_text(dedent(block[1]))
    settings = read_settings(tmp_path / "orders.properties")
    check_names(settings, JOB_SETTINGS)
    parse_options(source_options(settings), streaming=True)
    assert settings["ingest.trigger"] == "30 seconds"


def test_each_scheduler_starts_one_run_at_once_and_waits_for_the_micro_batch() -> None:
    assert "max_active_runs=1" in AIRFLOW and "catchup=False" in AIRFLOW
    assert "flock -n -E 75 " in CRON
    (seconds,) = re.findall(r"TimeoutStopSec=(\d+)s", SERVICE)
    assert int(seconds) > STOP_S + 10
    assert STOP_S + 10 <= 30, "Kubernetes gives a pod 30 s"
    assert "RestartPreventExitStatus=2" in SERVICE and "SuccessExitStatus=143" in SERVICE


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock")
def test_a_second_run_of_cron_ends_while_the_first_one_has_the_lock(tmp_path: Path) -> None:
    (line,) = [line for line in CRON.splitlines() if " spark-submit " in line]
    command = line.split(" ", 5)[5]
    for there, here in (("/opt/tiered_stream", tmp_path), ("/run/lock", tmp_path), ("/var/log", tmp_path)):
        command = command.replace(there, shlex.quote(str(here)))
    program = tmp_path / "spark-submit"
    program.write_text(f"#!/bin/sh\necho started >> '{tmp_path}/runs'\nread line < '{tmp_path}/gate'\nexit 3\n")
    program.chmod(0o755)
    subprocess.run(["mkfifo", str(tmp_path / "gate")], check=True)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    first = subprocess.Popen(["sh", "-c", command], env=environment)
    with (tmp_path / "gate").open("w") as gate:  # opens when the first run reads it, so it has the lock
        second = subprocess.run(["sh", "-c", command], env=environment, check=False)
        gate.write("end\n")
    assert (second.returncode, first.wait()) == (75, 3)
    assert (tmp_path / "runs").read_text() == "started\n"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_takes_the_service_and_the_timer(tmp_path: Path) -> None:
    program = tmp_path / "spark-submit"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "tiered-stream-orders.service").write_text(
        SERVICE.replace("/opt/tiered_stream/venv/bin/spark-submit", f'"{program}"').replace("User=ingest", "User=root")
    )
    (tmp_path / "tiered-stream-orders.timer").write_text(TIMER)
    units = [str(tmp_path / f"tiered-stream-orders.{kind}") for kind in ("service", "timer")]
    verified = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in verified.stderr.splitlines() if "tiered-stream-orders" in line]
    assert ours == [], verified.stderr
