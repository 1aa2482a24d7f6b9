"""Tables in Google's and Azure's storage that Spark reaches by each cloud's Hadoop connector, and tables in HDFS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.stack.azurite import ACCOUNT, Azurite
from tests.rigs.stack.fake_gcs import FakeGcs
from tests.rigs.stack.hdfs import Hdfs
from tests.rigs.stack.processes import LONG
from tests.rigs.stack.spark import ROOT, spark_environment
from tiered_stream.delta.catalog.session_checks import GS_SETTINGS

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

BUCKET = "by-connector"


def google(server: FakeGcs) -> dict[str, Any]:
    """Return a session with gcs-connector; tasks take endpoint and credentials from it."""
    server.create_bucket(BUCKET)
    spark = {
        **{f"spark.hadoop.{name}": value for name, value in GS_SETTINGS.items()},
        "spark.hadoop.fs.gs.storage.root.url": f"{server.endpoint}/",
        "spark.hadoop.fs.gs.auth.type": "UNAUTHENTICATED",
        "spark.hadoop.fs.gs.project.id": "any",
    }
    return {"groups": ["gcs"], "spark": spark, "job": {}, "root": f"gs://{BUCKET}/tables"}


def azure(server: Azurite) -> dict[str, Any]:
    """Return a session with hadoop-azure, which uses the blob service, because Azurite has no other."""
    server.create_container(BUCKET)
    host = f"{ACCOUNT}.dfs.core.windows.net"
    settings = {
        "abfs.endpoint": server.endpoint.split("/")[2], f"account.key.{host}": server.key,
        f"account.key.{ACCOUNT}.blob.core.windows.net": server.key, "account.hns.enabled": "false",
        "fns.account.service.type": "BLOB", "always.use.https": "false",
        "networking.library": "JDK_HTTP_URL_CONNECTION",
    }  # fmt: skip
    spark = {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}
    return {"groups": ["abfs"], "spark": spark, "job": {}, "root": f"abfs://{BUCKET}@{host}/tables"}


def found_by(session: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    (folder / "session.json").write_text(json.dumps(session))
    command = [sys.executable, "-m", "tests.delta.connector_driver", str(folder)]
    run = subprocess.run(
        command, cwd=ROOT, env=spark_environment(), capture_output=True, text=True, timeout=LONG, check=False
    )
    assert run.returncode == 0, run.stderr[-8000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def check(found: Mapping[str, Any]) -> None:
    tables = ("direct", "spark", "both")
    assert found["equal"] == dict.fromkeys(tables, True)
    assert found["engines"] == {table: ["Apache-Spark"] for table in tables}
    assert found["replaced"] == {"before": False, "records": 250, "after": True}
    assert found["redriven"]["ids"] == list(range(20))
    assert found["redriven"]["left"] == ["garbage"]


def test_both_lanes_replays_and_redrives_commit_by_delta_spark_in_googles_storage(
    tmp_path: Path, fake_gcs: FakeGcs
) -> None:
    check(found_by(google(fake_gcs), tmp_path))


def test_both_lanes_replays_and_redrives_commit_by_delta_spark_in_azures_storage(
    tmp_path: Path, azurite: Azurite
) -> None:
    check(found_by(azure(azurite), tmp_path))


def test_both_lanes_replays_and_redrives_commit_by_delta_spark_in_hdfs(tmp_path: Path, hdfs: Hdfs) -> None:
    check(found_by({"groups": [], "spark": {}, "job": {}, "root": f"{hdfs.uri}{tmp_path}/tables"}, tmp_path))
