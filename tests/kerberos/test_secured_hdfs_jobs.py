"""Jobs whose archive, table and checkpoint are in an HDFS that asks for Kerberos, and the ways to protect its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.delta.archive import ODD, PLAIN, everything, landed, options
from tests.jobs.submitted import SubmittedJob, jars
from tests.kerberos.kdc import REALM
from tests.kerberos.secured_hdfs import SecuredHdfs, started
from tests.stack.spark import DELTA, SHORT_LIVED_JVM
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

pytestmark = pytest.mark.slow

DATA = bytes(range(256)) * 10_000


def spark_of(here: SecuredHdfs, *, keytab: bool) -> dict[str, str]:
    """Spark's properties, with a login of the JVM by the key table, or else by the ticket cache."""
    java = f'{SHORT_LIVED_JVM} "-Djava.security.krb5.conf={here.kdc.config}"'
    login = {"spark.kerberos.principal": f"reader@{REALM}", "spark.kerberos.keytab": str(here.keytab)}
    return {**DELTA, **jars("delta"), "spark.driver.extraJavaOptions": java, **(login if keytab else {})}


@pytest.mark.parametrize(
    ("lane", "commit", "by"),
    [
        ("direct", "spark", "tickets"), ("direct", "spark", "key table"), ("direct", "deltalake", "tickets"),
        ("spark", "spark", "key table"),
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
        own |= {f"ingest.storage.hdfs.{name}": value for name, value in here.login.items()}
    given = {**without_storage(options()), **here.archive(PLAIN, f"{root}/tier"), **own}
    job = SubmittedJob("ingest_to_delta.py", tmp_path / "job", given, spark=spark_of(here, keytab=by == "key table"))
    job.start()
    assert job.wait() == 0, job.output()
    assert f"{lane} lane" in job.output()

    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")  # deltalake's only login
    assert landed(own["ingest.table"]).equals(everything(ODD))


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
        assert store.get("key", ByteRange(5, 2_000_000)) == DATA[5:2_000_000]
