"""Jobs whose archive, table and checkpoint are in an HDFS that asks for Kerberos, and the ways to protect its data."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.delta.archive import LONG, PLAIN, everything, landed, options
from tests.delta.committing import QUERY, offsets, planned, written
from tests.jobs.submitted import SubmittedJob, jars
from tests.kerberos.kdc import REALM
from tests.kerberos.secured_hdfs import SecuredHdfs, started
from tests.rigs.stack.spark import DELTA, SHORT_LIVED_JAVA
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import StorageUnavailableError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.hdfs_store import HdfsStore
from tiered_stream.storage.open_store import open_store

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

DATA = bytes(range(256)) * 10_000
SOME = ByteRange(5, 2_000_000)
TICKET_SECONDS = 10


def spark_of(here: SecuredHdfs, *, keytab: bool) -> dict[str, str]:
    """Spark's properties, with a login of the JVM by the key table, or else by the ticket cache."""
    java = f'{SHORT_LIVED_JAVA} "-Djava.security.krb5.conf={here.kdc.config}"'
    login = {"spark.kerberos.principal": f"{here.user}@{REALM}", "spark.kerberos.keytab": str(here.keytab)}
    return {**DELTA, **jars("delta"), "spark.driver.extraJavaOptions": java, **(login if keytab else {})}


@pytest.mark.parametrize(
    ("lane", "commit", "by"),
    [
        ("direct", "spark", "tickets"), ("direct", "spark", "key table"), ("direct", "deltalake", "tickets"),
        ("direct", "deltalake", "key table"), ("spark", "spark", "key table"),
    ],
)  # fmt: skip
def test_a_job_lands_an_archive_in_secured_hdfs(
    secured_hdfs: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str, commit: str, by: str
) -> None:
    here, root = secured_hdfs, f"/jobs/{tmp_path.name}"
    here.use(monkeypatch)
    own = {
        "ingest.table": f"{here.uri}{root}/table", "ingest.checkpointLocation": f"{here.uri}{root}/checkpoint",
        "ingest.lane": lane, "ingest.commit": commit,
    }  # fmt: skip
    here.kdc.kinit("reader", here.keytab, tmp_path / "tickets")
    if by == "tickets":
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    else:
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/nothing")
        own |= {f"ingest.storage.hdfs.{name}": value for name, value in here.login.items()}
    given = {**without_storage(options(LONG)), **here.archive(PLAIN, LONG, f"{root}/tier"), **own}
    job = SubmittedJob("ingest_to_delta.py", tmp_path / "job", given, spark=spark_of(here, keytab=by == "key table"))
    job.start()
    assert job.wait() == 0, job.output()
    assert f"{lane} lane" in job.output()

    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    assert landed(own["ingest.table"]).equals(everything(LONG))


def test_deltalake_writes_a_table_by_a_delegation_token(
    secured_hdfs: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured_hdfs.use(monkeypatch)
    secured_hdfs.write_token(tmp_path / "tokens")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    files = TableSpec(f"{secured_hdfs.uri}/tables/{tmp_path.name}")
    create_table(files, table_schema(True, None), {})
    commits = TableCommits(planned(files), lambda *_: None)
    commits.commit(QUERY, 0, written(files, 10, 0))
    assert offsets(files) == list(range(10))


def without_storage(given: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name != "remote.storage.uri"}


@pytest.mark.parametrize(
    "more",
    [
        {"dfs.data.transfer.protection": "authentication"},
        {"dfs.data.transfer.protection": "privacy"},
        {"dfs.data.transfer.protection": "privacy", "dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding"},
        {"dfs.encrypt.data.transfer": "true", "hadoop.rpc.protection": "privacy"},
        {"dfs.encrypt.data.transfer": "true", "hadoop.rpc.protection": "integrity"},
    ],
    ids=lambda more: " ".join(more.values()),
)
def test_protected_data_is_written_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    with started(tmp_path, more) as here:
        here.use(monkeypatch)
        store = open_store(StorageOptions(uri=f"{here.uri}/folder", **here.by_keytab()))  # type: ignore[arg-type]
        store.put("key", DATA)
        assert store.get("key", SOME) == DATA[SOME.start : SOME.end]


@pytest.mark.parametrize("protection", ["authentication", "privacy"])
def test_a_ticket_that_runs_out_ends_new_connections_and_no_open_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str
) -> None:
    with started(tmp_path, {"hadoop.rpc.protection": protection}) as here:
        here.use(monkeypatch)
        here.kdc.kinit("reader", here.keytab, tmp_path / "tickets", "-l", f"{TICKET_SECONDS}s")
        ends = time.monotonic() + TICKET_SECONDS
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
        store = open_store(StorageOptions(uri=f"{here.uri}/folder"))
        assert isinstance(store, HdfsStore)
        store.put("key", DATA)
        while time.monotonic() < ends + 3:
            assert store.get("key", SOME) == DATA[SOME.start : SOME.end]
            time.sleep(0.5)
        another = open_store(StorageOptions(uri=f"{here.uri}/folder"))
        with pytest.raises(StorageUnavailableError, match="the ticket has expired: renew the ticket .kinit"):
            another.get("key", SOME)
        here.kdc.kinit("reader", here.keytab, tmp_path / "tickets")
        assert another.get("key", SOME) == DATA[SOME.start : SOME.end]
