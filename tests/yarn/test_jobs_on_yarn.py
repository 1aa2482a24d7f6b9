"""The job on YARN, in client and in cluster mode; its workers have nothing but the packed environment."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.delta.archive import LONG, ODD, everything, landed
from tests.delta.archive import options as archive_options
from tests.kerberos.kdc import why_no_kerberos
from tests.kerberos.realm import ROWS, SERVICE, TOPIC, realm
from tests.reading import options
from tests.stack.processes import wait_until
from tests.stack.yarn import Yarn, started
from tests.yarn.submitted import YarnJob

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def settings(folder: Path, topics: str = ODD, **more: str) -> dict[str, str]:
    own = {"ingest.table": str(folder / "table"), "ingest.checkpointLocation": str(folder / "checkpoint")}
    return {**archive_options(topics), **own, **{name.replace("_", "."): value for name, value in more.items()}}


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_the_job_lands_an_archive_by_the_packed_environment_alone(
    yarn: Yarn, packed: Path, tmp_path: Path, mode: str, lane: str
) -> None:
    job = YarnJob(yarn, tmp_path / "job", mode, settings(tmp_path, ingest_lane=lane), packed)

    assert job.run() == 0, job.output()
    assert landed(tmp_path / "table").equals(everything(ODD))


def commits(folder: Path) -> int:
    """How many micro-batches the checkpoint has as done."""
    return len([each for each in (folder / "checkpoint" / "commits").glob("*") if each.name.isdigit()])


def _has_done(job: YarnJob, folder: Path, batches: int) -> bool:
    return not job.running or commits(folder) >= batches


PERSISTENT = {"spark.task.maxFailures": "100", "spark.executor.maxNumFailures": "100"}
KILLS = 5


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_executors_that_the_node_manager_kills_lose_and_repeat_no_record(
    yarn: Yarn, packed: Path, tmp_path: Path, mode: str
) -> None:
    given = settings(tmp_path, LONG, maxOffsetsPerTrigger="150")
    job = YarnJob(yarn, tmp_path / "job", mode, given, packed, spark=PERSISTENT)
    job.start()
    try:
        for number in range(1, KILLS + 1):
            wait_until(partial(_has_done, job, tmp_path, 3 * number), f"{3 * number} micro-batches")
            assert job.running, job.output()
            yarn.kill(yarn.executors()[0])
        assert job.wait() == 0, job.output()
    finally:
        job.stop()

    assert landed(tmp_path / "table").equals(everything(LONG))


def test_a_driver_that_the_node_manager_kills_goes_on_in_another_attempt(
    yarn: Yarn, packed: Path, tmp_path: Path
) -> None:
    given = settings(tmp_path, LONG, maxOffsetsPerTrigger="1000")
    job = YarnJob(yarn, tmp_path / "job", "cluster", given, packed)
    job.start()
    try:
        wait_until(lambda: not job.running or commits(tmp_path) >= 3, "three micro-batches")
        (master,) = [each for each in yarn.containers() if each not in yarn.executors()]
        yarn.kill(master)
        assert job.wait() == 0, job.output()
    finally:
        job.stop()

    assert landed(tmp_path / "table").equals(everything(LONG))


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_executors_log_in_by_a_key_table_that_spark_ships(packed: Path, tmp_path: Path, mode: str) -> None:
    if missing := why_no_kerberos():
        pytest.skip(missing)
    with realm(tmp_path / "realm") as running, started(Yarn(tmp_path / "yarn")) as yarn:
        login = running.login(jaas=running.by_keytab(keytab=Path(running.keytab.name)))
        by_brokers = options(running.stack, TOPIC, {f"kafka.{name}": value for name, value in login.items()})
        given = {**settings(tmp_path), **by_brokers, "remote.log.locator": "none"}
        given = {name: value for name, value in given.items() if not name.startswith("rsm.")}
        config = running.kdc.environment["KRB5_CONFIG"]
        variables = {f"spark.{role}.KRB5_CONFIG": config for role in ("executorEnv", "yarn.appMasterEnv")}
        job = YarnJob(yarn, tmp_path / "job", mode, given, packed, [running.keytab], variables)
        if mode == "client":
            shutil.copy(running.keytab, job.folder)
        before = running.kdc.issued("reader", SERVICE)

        assert job.run(running.kdc.environment) == 0, job.output()
        rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
        assert sorted(rows) == list(range(ROWS))
        assert running.kdc.issued("reader", SERVICE) >= before + 2  # by the driver and by an executor, at least
