"""Tables in Google's and Azure's storage that Spark reaches by each cloud's Hadoop connector, and tables in HDFS."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.delta.driver import found_by
from tests.rigs.stack.azurite import ACCOUNT, Azurite
from tests.rigs.stack.fake_gcs import FakeGcs
from tests.rigs.stack.hdfs import Hdfs
from tiered_stream.delta.catalog.session_checks import GS_SETTINGS

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow, pytest.mark.stack]

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


def hdfs(server: Hdfs) -> dict[str, Any]:
    return {"groups": [], "spark": {}, "job": {}, "root": f"{server.uri}/by-connector-{uuid4().hex}/tables"}


@pytest.mark.parametrize(("server", "session"), [("fake_gcs", google), ("azurite", azure), ("hdfs", hdfs)])
def test_both_lanes_replays_and_redrives_commit_by_delta_spark(
    tmp_path: Path, request: pytest.FixtureRequest, server: str, session: Callable[[Any], dict[str, Any]]
) -> None:
    (tmp_path / "session.json").write_text(json.dumps(session(request.getfixturevalue(server))))
    found = found_by("tests.delta.connector_driver", tmp_path)
    tables = ("direct", "spark", "both")
    assert found["equal"] == dict.fromkeys(tables, True)
    assert found["engines"] == {table: ["Apache-Spark"] for table in tables}
    assert found["replaced"] == {"before": False, "records": 250, "after": True}
    assert found["redriven"]["ids"] == list(range(20))
    assert found["redriven"]["left"] == ["garbage"]
