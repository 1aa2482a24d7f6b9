"""Jobs on YARN and in HDFS that both ask for a Kerberos login, as the brokers do; all of one realm."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.delta.archive import LONG, everything, landed, offsets_of, rows_of
from tests.delta.archive import options as archive_options
from tests.kerberos.kdc import REALM, Kdc, why_no_kerberos
from tests.kerberos.realm import ROWS, TOPIC, Realm, realm
from tests.kerberos.secured_hdfs import NODES, SecuredHdfs
from tests.reading import options
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.shared import shared
from tests.rigs.stack.spark import SHORT_LIVED_JAVA
from tests.rigs.stack.yarn import Yarn
from tests.yarn.submitted import YarnJob

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

SHORT = "short-on-yarn"
"""Principal whose tickets are short."""
LIFE_SECONDS = 120
"""Lifetime of a ticket of the principal `short`."""
STREAM_SECONDS = 600
RECORDS_AT_ONCE = 20


@dataclass(frozen=True)
class Services:
    """Brokers, HDFS and YARN of one realm, whose KDC has the principals `reader` and `short` with key tables."""

    brokers: Realm
    hdfs: SecuredHdfs
    yarn: Yarn
    short: Path

    @property
    def kdc(self) -> Kdc:
        return self.brokers.kdc

    def keytab(self, user: str) -> Path:
        return self.short if user == SHORT else self.brokers.keytab

    def job(
        self, packed: Path, folder: Path, mode: str, user: str, given: dict[str, str], files: list[Path]
    ) -> YarnJob:
        """A job that submits, stages its files and commits as `user`, by its key table."""
        config = self.kdc.environment["KRB5_CONFIG"]
        java = f"{SHORT_LIVED_JAVA} -Djava.security.krb5.conf={config}"
        roles = ("driver", "executor", "yarn.am")[: 3 if mode == "client" else 2]
        spark = {
            "spark.kerberos.principal": f"{user}@{REALM}",
            "spark.kerberos.keytab": str(self.keytab(user)),
            "spark.kerberos.relogin.period": "20s",
            "spark.yarn.stagingDir": f"{self.hdfs.uri}/{folder.name}/staging",
            **{f"spark.{role}.extraJavaOptions": java for role in roles},
            **{f"spark.{role}.KRB5_CONFIG": config for role in ("executorEnv", "yarn.appMasterEnv")},
        }
        job = YarnJob(self.yarn, folder / "job", mode, given, packed, files, spark)
        if mode == "client":
            for file in files:
                shutil.copy(file, job.folder)
        return job

    @property
    def environment(self) -> dict[str, str]:
        """Variables of `spark-submit`, which has no ticket."""
        return {
            **self.kdc.environment,
            "KRB5CCNAME": f"FILE:{self.kdc.folder}/nothing",
            "SPARK_SUBMIT_OPTS": f"-Djava.security.krb5.conf={self.kdc.config}",
        }

    def place(self, folder: Path) -> dict[str, str]:
        """A table and its checkpoint in HDFS."""
        root = f"{self.hdfs.uri}/{folder.name}"
        return {"ingest.table": f"{root}/table", "ingest.checkpointLocation": f"{root}/checkpoint"}


@pytest.fixture(scope="module")
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    if missing := why_no_kerberos():
        pytest.skip(missing)
    folder, nodes = tmp_path_factory.mktemp("realm"), f"{NODES}@{REALM}"
    principals = {"yarn.resourcemanager.principal": nodes, "yarn.nodemanager.principal": nodes}
    secured: SecuredHdfs = request.getfixturevalue("secured_hdfs")
    with Yarn(folder / "yarn", secured.hdfs, principals) as yarn:
        short = secured.kdc.add(SHORT, f"{LIFE_SECONDS} seconds")
        yield Services(shared(realm), secured, yarn, short)


@pytest.fixture
def looking(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks into HDFS by a ticket of `reader`."""
    services.hdfs.use(monkeypatch)
    services.kdc.kinit("reader", services.brokers.keytab, tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")


@pytest.mark.usefixtures("looking")
def test_tasks_write_by_the_delegation_tokens_that_yarn_gives_them(
    services: Services, packed: Path, tmp_path: Path
) -> None:
    given = {**archive_options(LONG), **services.place(tmp_path), "ingest.lane": "direct"}
    job = services.job(packed, tmp_path, "cluster", "reader", given, [])

    assert job.run(services.environment) == 0, job.output()
    assert landed(given["ingest.table"]).equals(everything(LONG))


@pytest.mark.parametrize("lane", ["direct", "spark"])
@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.usefixtures("looking")
def test_a_key_table_logs_in_at_brokers_and_name_node_wherever_the_driver_is(
    services: Services, packed: Path, tmp_path: Path, mode: str, lane: str
) -> None:
    given = {**from_brokers(services, "reader"), **services.place(tmp_path), "ingest.lane": lane}
    job = services.job(packed, tmp_path, mode, "reader", given, [shipped(services, "reader", tmp_path)])

    assert job.run(services.environment) == 0, job.output()
    assert offsets_of(given["ingest.table"]) == list(range(ROWS))


@pytest.mark.usefixtures("looking")
def test_a_stream_outlives_its_tickets_of_brokers_hdfs_and_yarn(
    services: Services, packed: Path, tmp_path: Path
) -> None:
    given = {**from_brokers(services, SHORT), **services.place(tmp_path), "ingest.trigger": "1 second"}
    table = given["ingest.table"]
    job = services.job(packed, tmp_path, "cluster", SHORT, given, [shipped(services, SHORT, tmp_path)])
    job.start(services.environment)
    rows = ROWS
    try:
        wait_until(lambda: not job.running or rows_of(table) >= rows, "the first rows")
        begin = time.monotonic()
        with RawProducer(services.brokers.stack.broker) as producer:
            while time.monotonic() < begin + STREAM_SECONDS:
                producer.send(TOPIC, [Record(value=b"v")] * RECORDS_AT_ONCE)
                rows += RECORDS_AT_ONCE
                wait_until(lambda: not job.running or rows_of(table) >= rows, "the rows")  # noqa: B023 - asked at once
                assert job.running, job.output()
    finally:
        job.stop()
        services.yarn.end_applications()
    assert offsets_of(table) == list(range(rows))


def from_brokers(services: Services, user: str) -> dict[str, str]:
    """Settings for a topic of the brokers, with logins by the key table that `shipped` ships."""
    name, principal = f"{user}-of-tasks.keytab", f"{user}@{REALM}"
    login = services.brokers.login(jaas=services.brokers.by_keytab(user, Path(name)))
    hdfs = {"auth.kerberos.principal": principal, "auth.kerberos.keytab": name}
    return {
        **options(services.brokers.stack, TOPIC, {f"kafka.{key}": value for key, value in login.items()}),
        **{f"ingest.storage.hdfs.{key}": value for key, value in hdfs.items()},
        "remote.log.locator": "none",
    }


def shipped(services: Services, user: str, folder: Path) -> Path:
    """The key table under another name, because Spark ships no file twice and ships its own."""
    return Path(shutil.copy(services.keytab(user), folder / f"{user}-of-tasks.keytab"))
