"""Rules for tables on managed platforms: who may commit, and where Spark alone has credentials."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import options
from tiered_stream.delta.catalog import session_checks
from tiered_stream.delta.catalog.platforms import Platform
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.commit import commit_library
from tiered_stream.delta.commit.commit_library import with_access
from tiered_stream.delta.landing import spark_lane
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.delta.requirements.hadoop_settings import NoCredentialsError
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.delta.settings.ingest_settings import TableSpec, table_spec
from tiered_stream.errors import ConfigurationError

DATABRICKS = Platform("Databricks", "a sign", commits_to_s3_itself=True, gives_credentials=True)
EMR = Platform("Amazon EMR", "a sign")
IN_S3, IN_AZURE = "s3://lake/orders", "abfss://lake@account.dfs.core.windows.net/orders"
KEYS = {
    "ingest.storage.aws.access.key.id": "k",
    "ingest.storage.aws.secret.access.key": "s",
    "ingest.storage.s3.region": "eu-west-1",
}


def spec(uri: str, settings: dict[str, str]) -> TableSpec:
    return replace(table_spec(settings), uri=uri)


def put(monkeypatch: pytest.MonkeyPatch, platform: Platform) -> None:
    """Put the session on a platform."""
    for module in (commit_library, session_checks):
        monkeypatch.setattr(module, "platform_of", lambda _: platform)


def test_databricks_own_writers_keep_a_table_in_s3_from_the_direct_lane(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, DATABRICKS)
    _, why_not = with_access(spark, spec(IN_S3, KEYS))
    assert why_not is not None
    assert why_not.startswith("Databricks ") and "ingest.commit=deltalake" in why_not
    assert with_access(spark, spec(IN_S3, {**KEYS, "ingest.commit": "deltalake"}))[1] is None


def test_other_platforms_and_folders_keep_the_direct_lane(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, EMR)
    assert with_access(spark, spec(IN_S3, KEYS))[1] is None
    put(monkeypatch, DATABRICKS)
    assert with_access(spark, spec("file:///lake/orders", KEYS))[1] is None


def test_a_session_without_credentials_has_them_only_on_some_platforms(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_found(*_: object) -> None:
        raise NoCredentialsError("there are no credentials")

    monkeypatch.setattr(commit_library, "find_access", none_found)
    put(monkeypatch, DATABRICKS)
    assert with_access(spark, spec(IN_AZURE, {}))[1] == (
        "Databricks gives credentials to Spark alone: there are no credentials"
    )
    put(monkeypatch, replace(DATABRICKS, gives_credentials=False))
    with pytest.raises(NoCredentialsError):
        with_access(spark, spec(IN_AZURE, {}))


def test_a_query_logs_the_platform_before_its_lane(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(monkeypatch, DATABRICKS)
    checkpoint = str(tmp_path / "checkpoint")
    landing = plan_query(spark, options=options(), table=str(tmp_path / "table"), run=QueryRun(checkpoint))
    with caplog.at_level(logging.INFO, "tiered_stream"):
        landing.start().awaitTermination()
    platform, lane = [text for text in caplog.messages if " lane: " in text or "platform" in text]
    assert "Databricks (a sign)" in platform
    assert "the direct lane: " in lane


def test_dead_letters_in_the_spark_lane_need_delta_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {
        "ingest.value.format": "json",
        "ingest.value.schema": "id BIGINT",
        "ingest.onDecodeError": "deadLetter",
        "ingest.deadLetterTable": str(tmp_path / "dead"),
    }
    landing = plan_query(
        spark,
        options=options(given=given),
        table=str(tmp_path / "table"),
        run=QueryRun(str(tmp_path / "c")),
        lane="spark",
    )
    assert landing.lane is Lane.SPARK
    monkeypatch.setattr(spark_lane, "has_delta_spark", lambda _: False)
    with pytest.raises(ConfigurationError, match=r"delta-spark.* ingest\.deadLetterTable"):
        landing.start()
