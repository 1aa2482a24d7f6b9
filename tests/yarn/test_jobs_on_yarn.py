"""The job on YARN, in client and in cluster mode; its workers have nothing but the packed environment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.delta.archive import LONG, ODD, everything, landed, offsets_of
from tests.delta.archive import options as archive_options
from tests.kerberos.kdc import why_no_kerberos
from tests.kerberos.realm import ROWS, TOPIC, Realm, realm
from tests.reading import options
from tests.rigs.stack.hdfs import Hdfs
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.shared import shared
from tests.rigs.stack.yarn import Yarn
from tests.services import SERVICE
from tests.yarn.submitted import YarnJob

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]


def settings(folder: Path | str, topics: str = ODD, **more: str) -> dict[str, str]:
    own = {"ingest.table": f"{folder}/table", "ingest.checkpointLocation": f"{folder}/checkpoint"}
    return {**archive_options(topics), **own, **{name.replace("_", "."): value for name, value in more.items()}}


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_the_job_lands_an_archive_by_the_packed_environment_alone(
    yarn: Yarn, packed: Path, tmp_path: Path, mode: str, lane: str
) -> None:
    job = YarnJob(yarn, tmp_path / "job", mode, settings(tmp_path, ingest_lane=lane), packed)

    assert job.run() == 0, job.output()
    assert landed(tmp_path / "table").equals(everything(ODD))


@pytest.fixture(scope="module")
def over_hdfs(tmp_path_factory: pytest.TempPathFactory, hdfs: Hdfs) -> Iterator[Yarn]:
    """YARN with one node manager, and HDFS as its file system."""
    with Yarn(tmp_path_factory.mktemp("yarn-over-hdfs"), hdfs) as cluster:
        yield cluster


@dataclass(frozen=True)
class InHdfs:
    """Folder in HDFS for a table, its checkpoint and the files that Spark ships."""

    hdfs: Hdfs
    folder: str

    @property
    def uri(self) -> str:
        return f"{self.hdfs.uri}/{self.folder}"

    @property
    def table(self) -> str:
        return f"{self.uri}/table"

    def spark(self, **more: str) -> dict[str, str]:
        return {"spark.yarn.stagingDir": f"{self.uri}/staging"} | more

    def commits(self) -> int:
        """How many micro-batches the checkpoint has as done."""
        folder = self.hdfs.java.jvm.org.apache.hadoop.fs.Path(f"/{self.folder}/checkpoint/commits")
        files = self.hdfs.cluster.getFileSystem()
        found = files.listStatus(folder) if files.exists(folder) else ()
        return sum(each.getPath().getName().isdigit() for each in found)

    def has_done(self, job: YarnJob, batches: int) -> bool:
        """Whether so many micro-batches are done, or the job has ended."""
        return not job.running or self.commits() >= batches


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_job_lands_in_hdfs_with_its_checkpoint_and_staged_files_there(
    over_hdfs: Yarn, hdfs: Hdfs, packed: Path, tmp_path: Path, mode: str
) -> None:
    place = InHdfs(hdfs, mode)
    job = YarnJob(over_hdfs, tmp_path / "job", mode, settings(place.uri), packed, spark=place.spark())

    assert job.run() == 0, job.output()
    assert "direct lane" in job.output()
    assert landed(place.table).equals(everything(ODD))


DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.instances": "0",
    "spark.log.level": "INFO",
}


def test_dynamic_allocation_asks_for_executors_when_there_is_something_to_read(
    over_hdfs: Yarn, hdfs: Hdfs, packed: Path, tmp_path: Path
) -> None:
    place = InHdfs(hdfs, "dynamic")
    given = settings(place.uri, LONG, maxOffsetsPerTrigger="5000")
    job = YarnJob(over_hdfs, tmp_path / "job", "client", given, packed, spark=place.spark(**DYNAMIC))

    assert job.run() == 0, job.output()
    assert "new desired total will be" in job.log_file.read_text()
    assert landed(place.table).equals(everything(LONG))


PERSISTENT = {"spark.task.maxFailures": "100", "spark.executor.maxNumFailures": "100"}
KILLS = 5
"""Number of kills in each of the two modes and the two lanes."""


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_executors_that_the_node_manager_kills_lose_and_repeat_no_record(
    over_hdfs: Yarn, hdfs: Hdfs, packed: Path, tmp_path: Path, mode: str, lane: str
) -> None:
    place = InHdfs(hdfs, f"kills-{mode}-{lane}")
    given = settings(place.uri, LONG, maxOffsetsPerTrigger="500", ingest_lane=lane)
    with YarnJob(over_hdfs, tmp_path / "job", mode, given, packed, spark=place.spark(**PERSISTENT)) as job:
        for number in range(1, KILLS + 1):
            wait_until(partial(place.has_done, job, 3 * number), f"{3 * number} micro-batches")
            assert job.running, job.output()
            over_hdfs.kill(over_hdfs.executors()[0])
        assert job.wait() == 0, job.output()

    assert landed(place.table).equals(everything(LONG))


def test_a_driver_that_the_node_manager_kills_goes_on_in_another_attempt(
    over_hdfs: Yarn, hdfs: Hdfs, packed: Path, tmp_path: Path
) -> None:
    place = InHdfs(hdfs, "attempts")
    given = settings(place.uri, LONG, maxOffsetsPerTrigger="1000")
    with YarnJob(over_hdfs, tmp_path / "job", "cluster", given, packed, spark=place.spark()) as job:
        wait_until(partial(place.has_done, job, 3), "three micro-batches")
        (master,) = [each for each in over_hdfs.containers() if each not in over_hdfs.executors()]
        over_hdfs.kill(master)
        assert job.wait() == 0, job.output()

    assert landed(place.table).equals(everything(LONG))


@pytest.fixture(scope="module")
def here() -> Realm:
    if missing := why_no_kerberos():
        pytest.skip(missing)
    return shared(realm)


def kerberos_job(
    yarn: Yarn, here: Realm, packed: Path, folder: Path, mode: str, given: dict[str, str], *, ship: bool
) -> YarnJob:
    """A job that logs in by a key table without a folder: shipped to the containers, or only in the driver's folder."""
    login = here.login(jaas=here.by_keytab(keytab=Path(here.keytab.name)))
    reading = options(here.stack, TOPIC, {f"kafka.{name}": value for name, value in login.items()})
    own = {name: value for name, value in settings(folder).items() if name.startswith("ingest.")}
    config = here.kdc.environment["KRB5_CONFIG"]
    variables = {f"spark.{role}.KRB5_CONFIG": config for role in ("executorEnv", "yarn.appMasterEnv")}
    files = [here.keytab] if ship else []
    job = YarnJob(yarn, folder / "job", mode, {**reading, **own, **given}, packed, files, variables)
    if mode == "client":
        shutil.copy(here.keytab, job.folder)
    return job


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_executors_log_in_by_a_key_table_that_spark_ships(
    yarn: Yarn, here: Realm, packed: Path, tmp_path: Path, mode: str
) -> None:
    job = kerberos_job(yarn, here, packed, tmp_path, mode, {"remote.log.locator": "none"}, ship=True)
    before = here.kdc.issued("reader", SERVICE)

    assert job.run(here.kdc.environment) == 0, job.output()
    assert offsets_of(tmp_path / "table") == list(range(ROWS))
    assert here.kdc.issued("reader", SERVICE) >= before + 2  # by the driver and by an executor, at least


def test_executors_without_a_login_read_tiered_segments_and_name_the_key_table_at_the_tail(
    yarn: Yarn, here: Realm, packed: Path, tmp_path: Path
) -> None:
    tiered = {"boundedStreaming": "true", "endingOffsets": json.dumps({TOPIC: {"0": ROWS - 1}})}
    job = kerberos_job(yarn, here, packed, tmp_path, "client", tiered, ship=False)
    assert job.run(here.kdc.environment) == 0, job.output()
    assert offsets_of(tmp_path / "table") == list(range(ROWS - 1))

    again = kerberos_job(yarn, here, packed, tmp_path, "client", {}, ship=False)
    assert again.run(here.kdc.environment) == 1
    assert "keyTab = 'reader.keytab' is not a file that this process can read" in again.output()
    assert offsets_of(tmp_path / "table") == list(range(ROWS - 1))
