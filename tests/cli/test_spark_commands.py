"""The command line and the job, in processes of their own: exit codes, Ctrl-C, a dry run for programs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from typer.testing import CliRunner, Result

from tests.delta.archive import LONG, everything, landed, options
from tests.inspection.test_query_checkpoint import write_checkpoint
from tests.jobs.submitted import SubmittedJob
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.processes import LONG as SECONDS
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.spark import LOCAL, ROOT, SHORT_LIVED, spark_environment
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.cli import app, spark_commands

ENDPOINT = "fs.s3a.endpoint"

COMMAND = [sys.executable, "-c", "from tiered_stream.cli import app; app()"]
SLOWLY = {"maxOffsetsPerTrigger": "100"}
"""So that there is a moment to stop it at."""


def arguments(folder: Path, *more: str) -> list[str]:
    return ["--from", "0", "--into", str(folder / "table"), "--name", "all", *more]


def settings_file(folder: Path, given: Mapping[str, str] | None = None) -> str:
    """That of an ingest job: what it says of another table, and of where to begin, is no matter."""
    file = folder / "job.properties"
    job = {"ingest.table": "elsewhere/table", "ingest.checkpointLocation": "elsewhere/checkpoint"}
    file.write_text("".join(f"{name}={value}\n" for name, value in {**options(LONG), **job, **(given or {})}.items()))
    return str(file)


def command(*words: str, name: str = "replay") -> list[str]:
    jars = ",".join(map(str, jar_paths("delta")))
    conf = {**LOCAL, **SHORT_LIVED, "spark.driver.memory": "1g", "spark.jars": jars}
    given = (word for name, value in conf.items() for word in ("--spark-conf", f"{name}={value}"))
    return [*COMMAND, name, *words, *given]


def start(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, cwd=ROOT, env=spark_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@pytest.mark.starts_spark
@pytest.mark.slow
def test_ctrl_c_ends_well_and_the_job_goes_on(tmp_path: Path) -> None:
    settings, table = settings_file(tmp_path, SLOWLY), tmp_path / "table"
    commits = table / "_checkpoints" / "replay-all" / "commits"
    running = start(command(*arguments(tmp_path), "--settings", settings))
    wait_until(lambda: (commits / "2").exists() or running.poll() is not None, "micro-batches", pause=0.05)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=SECONDS)
    assert running.returncode == 130, said + errors
    assert "18,687 offsets of 1 partitions into table" in said and "direct lane" in said
    assert "name is all" in said
    assert 300 <= landed(table).num_rows < everything(LONG).num_rows

    job = SubmittedJob("replay_from_timestamp.py", tmp_path / "job", options(LONG), arguments(tmp_path))
    job.start()
    assert job.wait() == 0, job.output()
    assert "finished: " in job.output()
    assert landed(table).equals(everything(LONG))


@pytest.mark.starts_spark
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_without_end_that_is_stopped_says_its_sum(tmp_path: Path, number: signal.Signals) -> None:
    given = {**SLOWLY, "ingest.trigger": "0 seconds"}
    words = ["--settings", settings_file(tmp_path, given), "--table", str(tmp_path / "table")]
    running = start(command(*words, "--checkpoint", str(tmp_path / "checkpoint"), name="ingest"))
    assert running.stdout is not None
    said = ""
    while "batch 1: " not in said and (line := running.stdout.readline()):
        said += line
    running.send_signal(number)
    rest, errors = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + number, said + rest + errors
    assert ": stopped after its micro-batch; the next run goes on" in rest
    (summed,) = [line for line in rest.splitlines() if " in all " in line]
    assert re.search(r": in all \d{3,} rows.* from storage, 0\.0 MiB from brokers", summed), summed


@pytest.mark.starts_spark
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


def run(words: Sequence[str]) -> tuple[int, str]:
    """The exit status, and what was printed."""
    running = start(words)
    said, errors = running.communicate(timeout=SECONDS)
    return running.returncode, said + errors


@pytest.mark.starts_spark
@pytest.mark.slow
def test_a_replay_is_verified_and_later_by_itself_too(tmp_path: Path) -> None:
    given = [*arguments(tmp_path), "--settings", settings_file(tmp_path)]
    status, printed = run(command(*given, "--verify", "--max-bytes-per-second", "100m", "--lane", "direct"))
    assert status == 0, printed
    assert "18,687 records compared" in printed

    DeltaTable(tmp_path / "table").delete("offset = 77")
    status, printed = run(command(*given, "--verify"))
    assert status == 3, printed
    assert "finished before" in printed and "offset 77 is missing" in printed

    alone = ["--table", str(tmp_path / "table"), "--settings", settings_file(tmp_path)]
    status, printed = run(command(*alone, "--json", name="verify"))
    assert status == 3, printed
    assert '"offset": 77' in printed


@pytest.mark.starts_spark
@pytest.mark.slow
def test_a_replay_goes_into_a_folder_and_only_a_table_is_verified(tmp_path: Path) -> None:
    words = ["--from", "0", "--into", f"parquet:{tmp_path / 'folder'}", "--settings", settings_file(tmp_path)]
    status, printed = run(command(*words, "--verify"))
    assert status == 2, printed
    assert "--verify " in printed and "parquet" in printed
    assert not (tmp_path / "folder").exists()
    status, printed = run(command(*words))
    assert status == 0, printed
    files = (tmp_path / "folder").glob("*.parquet")
    assert sum(parquet.read_metadata(file).num_rows for file in files) == everything(LONG).num_rows


def no_spark(*_: object) -> None:
    raise AssertionError("Spark was started")


@pytest.fixture
def dry_run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command `replay --dry-run` of all times, which may not start Spark."""
    monkeypatch.setattr(spark_commands, "spark_session", no_spark)
    return lambda *words: CliRunner().invoke(app, ["replay", "--dry-run", "--from", "0", *words])


def offsets(ended: Result) -> int:
    """Number of offsets of which a dry run has said as JSON that it would read them."""
    assert ended.exit_code == 0, ended.output
    total: int = json.loads(ended.stdout)["total"]["offsets"]
    return total


@pytest.mark.parametrize("into", ["{}/table", "parquet:{}/folder", "kafka:copy"])
def test_a_dry_run_starts_no_spark(into: str, tmp_path: Path, dry_run: Callable[..., Result]) -> None:
    words = ["--into", into.format(tmp_path), "--settings", settings_file(tmp_path)]
    assert offsets(dry_run("--json", *words)) == 18_687
    assert [path.name for path in tmp_path.iterdir()] == ["job.properties"]


def test_a_dry_run_leaves_to_the_job_what_its_query_has_not_landed(
    tmp_path: Path, dry_run: Callable[..., Result]
) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", 0, json.dumps({LONG: {"0": 1000}}))
    own = {"ingest.checkpointLocation": str(checkpoint), "ingest.table": f"{tmp_path}/{{topic}}"}
    words = ["--into", f"{tmp_path}/table", "--settings", settings_file(tmp_path, own)]
    assert offsets(dry_run("--json", *words)) == 1000


@pytest.mark.parametrize(
    "words",
    [
        ["--into", "parquet:{}/folder", "--lane", "direct"],
        ["--into", "kafka:copy", "--lane", "spark"],
        ["--into", "{}/table", "--tasks", "5", "--max-bytes-per-second", "4"],
    ],
)
def test_a_dry_run_refuses_arguments_that_the_run_refuses(
    words: list[str], tmp_path: Path, dry_run: Callable[..., Result]
) -> None:
    given = [word.format(tmp_path) for word in words]
    assert dry_run("--json", *given, "--settings", settings_file(tmp_path)).exit_code == 2


def test_a_dry_run_names_a_plan_that_is_damaged(tmp_path: Path, dry_run: Callable[..., Result]) -> None:
    plan = tmp_path / "table" / "_checkpoints" / "replay-all" / "replay.json"
    plan.parent.mkdir(parents=True)
    plan.write_text("{}")
    ended = dry_run(*arguments(tmp_path), "--settings", settings_file(tmp_path))
    assert ended.exit_code == 1
    assert str(plan) in ended.output.replace("\n", "")


@pytest.mark.stack
@pytest.mark.parametrize("own", ["s3a://lake/checkpoints", "{}/checkpoints"])
def test_a_dry_run_reads_checkpoints_as_sparks_settings_say(
    tmp_path: Path, lake: VersityGateway, monkeypatch: pytest.MonkeyPatch, dry_run: Callable[..., Result], own: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    lake.client().create_bucket(Bucket="lake")
    settings = s3a_settings(lake.endpoint, lake.access_key, lake.secret_key)
    (tmp_path / "spark.conf").write_text("".join(f"spark.hadoop.{each} {settings[each]}\n" for each in settings))
    job = {"ingest.table": "s3a://lake/orders", "ingest.checkpointLocation": own.format(tmp_path)}
    words = ["--into", "s3a://lake/orders", "--settings", settings_file(tmp_path, job)]
    assert offsets(dry_run("--json", *words, "--properties-file", str(tmp_path / "spark.conf"))) == 18_687
    refused = dry_run(*words, "--spark-conf", f"spark.hadoop.{ENDPOINT}=http://127.0.0.1:1")
    assert refused.exit_code == 2 and refused.exception is not None
    assert "--properties-file" in refused.output and "Traceback" not in refused.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--into", "catalog_table"], "Spark's catalog"), (["--into", "a/b", "--replace"], "--replace depends on")],
)
def test_a_dry_run_says_why_it_starts_spark(
    words: list[str], reason: str, tmp_path: Path, dry_run: Callable[..., Result]
) -> None:
    result = dry_run("--settings", settings_file(tmp_path), *words)
    assert isinstance(result.exception, AssertionError)
    assert "The dry run starts Spark: " in result.stderr and reason in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "-3h", "--into", "a/b", "--max-bytes-per-second", "fast"], "must be a size"),
        (["--from", "-3h", "--to", "-4h", "--into", "a/b"], "is not after --from"),
        (["--from", "2026-11-01T00:00:00", "--into", "a/b"], "write 2026-11-01T00:00:00Z for UTC"),
        (["--from", "-3h", "--into", "a/b", "--option", "x"], "name=value"),
        (["--from", "-3h", "--into", "a/b", "--settings", "absent.properties"], "absent.properties cannot be read"),
        (["--from", "-3h", "--into", "a/b", "--properties-file", "absent.conf"], "absent.conf cannot be read"),
    ],
)
def test_wrong_input_is_refused_before_spark_starts(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["replay", *words])
    assert result.exit_code == 2 and said in result.output.replace("\n", " ")


def test_sparks_settings_that_come_after_spark_has_started_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as spark-submit sets it for a job
    (tmp_path / "spark.conf").write_text("spark.master local\n")
    words = ["replay", "--from", "-3h", "--into", "a/b", "--properties-file", str(tmp_path / "spark.conf")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2 and "--properties-file" in result.output


def test_a_redrive_without_a_table_for_dead_letters_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_commands, "spark_session", no_spark)
    result = CliRunner().invoke(app, ["redrive", "--option", "ingest.table=a/b"])
    assert result.exit_code == 2 and "ingest.deadLetterTable" in result.output
