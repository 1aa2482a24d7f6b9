"""Tables in Azure's and Google's storage that tasks write and Spark's own connectors commit."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything, in_order
from tests.delta.cloud_landing import CloudLanding
from tests.delta.clouds import Cloud, azure, google
from tests.delta.committing import table
from tests.stack.azurite import ACCOUNT, KEY, Azurite
from tests.stack.fake_gcs import FakeGcs
from tests.stack.spark import SHORT_LIVED_JVM
from tiered_stream.delta.settings.ingest_settings import TableFiles

TOPICS = tuple(ODD.split(","))


def check_landed(found: dict[str, object], files: TableFiles) -> None:
    expected = everything(ODD)
    assert found["lanes"] == ["direct", "direct"], found
    assert str(found["reasons"]).count("spark commits (so do the other queries of the session)") == 2
    assert found["rows"] == found["distinct"] == expected.num_rows
    assert in_order(table(files).to_pyarrow_table()).equals(expected)
    assert "STREAMING UPDATE" in {entry["operation"] for entry in table(files).history()}


@pytest.mark.stack
def test_two_queries_at_once_are_committed_by_sparks_connector_for_google(fake_gcs: FakeGcs, tmp_path: Path) -> None:
    cloud: Cloud = google(fake_gcs)
    cloud.create("connector")
    session = {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.gs.auth.type": "UNAUTHENTICATED",
        "fs.gs.storage.root.url": f"{fake_gcs.endpoint}/",
        "fs.gs.project.id": "any",
        "fs.gs.block.size": "67108864",  # Hadoop 3.5 has the default 64m, which the connector cannot parse
    }
    landing = CloudLanding(
        "gcs", {f"spark.hadoop.{name}": value for name, value in session.items()}, {"maxOffsetsPerTrigger": "1500"},
        TOPICS, "gs://connector/bronze/orders", str(tmp_path),
    )  # fmt: skip
    check_landed(landing.execute(), cloud.files("connector", "bronze/orders"))


@pytest.mark.stack
def test_two_queries_at_once_are_committed_by_hadoops_connector_for_azure(azurite: Azurite, tmp_path: Path) -> None:
    """Azurite has no endpoint for Data Lake Storage, so that the connector uses the blob service."""
    cloud = azure(azurite)
    cloud.create("connector")
    host = azurite.host
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {host.partition(':')[0]}\n127.0.0.1 {socket.gethostname()}\n")
    session = {
        f"fs.azure.account.key.{host}": KEY,
        "fs.azure.always.use.https": "false",
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.fns.account.service.type": "BLOB",
        "fs.azure.ingress.service.type": "BLOB",
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",  # the other library needs TLS
    }
    given = {
        "maxOffsetsPerTrigger": "1500",
        "ingest.storage.azure.endpoint.url": azurite.endpoint,
        "ingest.storage.azure.account.name": ACCOUNT,
    }
    landing = CloudLanding(
        "abfs",
        {
            **{f"spark.hadoop.{name}": value for name, value in session.items()},
            "spark.driver.extraJavaOptions": f"{SHORT_LIVED_JVM} -Djdk.net.hosts.file={hosts}",
        },
        given, TOPICS, f"abfs://connector@{host}/bronze/orders", str(tmp_path),
    )  # fmt: skip
    check_landed(landing.execute(), cloud.files("connector", "bronze/orders"))
