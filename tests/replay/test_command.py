"""The command line and the job, in processes of their own: exit codes, Ctrl-C, a dry run for programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.jobs.submitted import SubmittedJob
from tests.landing.archive import LONG, everything, landed, options
from tests.stack.jars import jar_paths
from tests.stack.processes import LONG as SECONDS
from tests.stack.processes import wait_until
from tests.stack.spark import LOCAL, ROOT, SHORT_LIVED, spark_environment
from tiered_stream.cli import app

COMMAND = [sys.executable, "-c", "from tiered_stream.cli import app; app()", "replay"]
SLOWLY = {"maxOffsetsPerTrigger": "100"}


def arguments(folder: Path, *more: str) -> list[str]:
    return ["--from", "0", "--table", str(folder / "table"), "--name", "all", *more]


def settings_file(folder: Path) -> str:
    """That of an ingest job: what it says of another table, and of where to begin, is no matter."""
    file = folder / "job.properties"
    job = {"ingest.table": "elsewhere/table", "ingest.checkpointLocation": "elsewhere/checkpoint"}
    file.write_text("".join(f"{name}={value}\n" for name, value in {**options(LONG, SLOWLY), **job}.items()))
    return str(file)


def command(*words: str) -> list[str]:
    jars = ",".join(map(str, jar_paths("delta")))
    conf = {**LOCAL, **SHORT_LIVED, "spark.driver.memory": "1g", "spark.jars": jars}
    return [*COMMAND, *words, *(word for name, value in conf.items() for word in ("--spark-conf", f"{name}={value}"))]


def start(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, cwd=ROOT, env=spark_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@pytest.mark.stack
@pytest.mark.slow
def test_ctrl_c_ends_well_and_the_job_goes_on(tmp_path: Path) -> None:
    settings, table = settings_file(tmp_path), tmp_path / "table"
    commits = table / "_checkpoints" / "replay-all" / "commits"
    running = start(command(*arguments(tmp_path), "--settings", settings))
    wait_until(lambda: (commits / "2").exists() or running.poll() is not None, "micro-batches", pause=0.05)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=SECONDS)
    assert running.returncode == 130, said + errors
    assert "18,687 offsets of 1 partitions into table" in said and "direct lane" in said
    assert "To go on, give the same command again (its name is all)" in said
    assert 300 <= landed(table).num_rows < everything(LONG).num_rows

    job = SubmittedJob("replay_from_timestamp.py", tmp_path / "job", options(LONG), arguments(tmp_path))
    job.start()
    assert job.wait() == 0, job.output()
    assert "finished: " in job.output()
    assert landed(table).equals(everything(LONG))


@pytest.mark.stack
@pytest.mark.slow
def test_a_dry_run_for_programs_is_json_and_writes_nothing(tmp_path: Path) -> None:
    words = arguments(tmp_path, "--dry-run", "--json", "--get-price", "1", "--settings", settings_file(tmp_path))
    running = start(command(*words))
    said, errors = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, errors
    figures = json.loads(said)
    assert (figures["name"], figures["total"]["offsets"]) == ("all", 18_687)
    assert figures["dollars"] == figures["total"]["gets"] / 1000
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "-3h", "--to", "-4h", "--table", "a/b"], "is not after --from"),
        (["--from", "2026-11-01T00:00:00", "--table", "a/b"], "write 2026-11-01T00:00:00Z for UTC"),
        (["--from", "-3h", "--table", "a/b", "--option", "x"], "name=value"),
        (["--from", "-3h", "--table", "a/b", "--settings", "absent.properties"], "absent.properties cannot be read"),
    ],
)
def test_wrong_input_is_refused_before_spark_starts(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["replay", *words])
    assert result.exit_code == 2 and said in result.output.replace("\n", " ")


def test_the_help_has_the_exit_codes() -> None:
    result = CliRunner().invoke(app, ["replay", "--help"])
    assert "Exit codes: 0 done" in " ".join(result.output.split())
