"""Which managed platform a driver's environment, settings, Spark version and classes show."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog import platforms, session_checks
from tiered_stream.delta.catalog.platforms import Platform, find_platform
from tiered_stream.delta.catalog.session_checks import log_platform, platform_of

SPARK_DELTA = "org.apache.spark.sql.delta.DeltaLog"
DATABRICKS_DELTA = "com.databricks.sql.transaction.tahoe.DeltaLog"


def found(
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    version: str = "4.2.0",
    *classes: str,
) -> Platform | None:
    return find_platform(environment or {}, (settings or {}).get, version, classes.__contains__)


@pytest.mark.parametrize(
    ("environment", "settings", "version", "name", "sign"),
    [
        ({"DATABRICKS_RUNTIME_VERSION": "17.3"}, {}, "4.0.0", "Databricks", "DATABRICKS_RUNTIME_VERSION=17.3"),
        ({"DATABRICKS_RUNTIME_VERSION": "client.4.9"}, {}, "", "Databricks", "DATABRICKS_RUNTIME_VERSION=client.4.9"),
        ({}, {"spark.databricks.clusterUsageTags.sparkVersion": "18.x"}, "4.1.0", "Databricks",
         "spark.databricks.clusterUsageTags.sparkVersion=18.x"),
        ({}, {"spark.cluster.type": "trident"}, "4.1.1", "Microsoft Fabric", "spark.cluster.type=trident"),
        ({"GLUE_VERSION": "6.0"}, {}, "4.1.1-amzn-0", "AWS Glue", "GLUE_VERSION=6.0"),
        ({"SERVERLESS_EMR_JOB_ID": "00f"}, {}, "4.0.2-amzn-0", "Amazon EMR Serverless", "SERVERLESS_EMR_JOB_ID=00f"),
        ({}, {}, "4.0.2-amzn-0", "Amazon EMR", "Spark 4.0.2-amzn-0"),
        ({}, {}, "4.0.2+amzn.0", "Amazon EMR", "Spark 4.0.2+amzn.0"),
        ({"DATAPROC_IMAGE_VERSION": "3.0"}, {}, "4.1.2", "Google Dataproc", "DATAPROC_IMAGE_VERSION=3.0"),
        ({"SPARK_DIST_CLASSPATH": "/etc/x:/usr/local/share/google/dataproc/lib/*"}, {}, "4.1.2",
         "Google's managed Spark", "SPARK_DIST_CLASSPATH"),
    ],
)  # fmt: skip
def test_each_platform_is_known_by_its_sign(
    environment: Mapping[str, str], settings: Mapping[str, str], version: str, name: str, sign: str
) -> None:
    platform = found(environment, settings, version)
    assert platform is not None
    assert (platform.name, platform.sign) == (name, sign)
    assert platform.commits_to_s3_itself == (name == "Databricks")
    assert str(platform).startswith(f"{name} ({sign}): ")
    assert "never tried" in str(platform)


def test_databricks_without_its_variable_is_known_by_its_build_of_delta() -> None:
    platform = found(None, None, "4.0.0", DATABRICKS_DELTA)
    assert platform is not None
    assert (platform.name, platform.sign) == ("Databricks", DATABRICKS_DELTA)


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, {}),
        ({"DATABRICKS_RUNTIME_VERSION": ""}, {}),
        ({"DATABRICKS_HOST": "x", "AWS_REGION": "eu-west-1", "GOOGLE_CLOUD_PROJECT": "p"}, {}),
        ({"SPARK_DIST_CLASSPATH": "/opt/hadoop/lib"}, {"spark.cluster.type": "own"}),
    ],
)
def test_a_plain_driver_has_no_sign_of_a_platform(environment: Mapping[str, str], settings: Mapping[str, str]) -> None:
    assert found(environment, settings, "4.2.0", SPARK_DELTA) is None


def test_a_session_of_this_machine_is_on_no_platform(spark: SparkSession) -> None:
    platform_of.cache_clear()
    assert platform_of(spark) is None


def test_classes_are_looked_up_in_the_sessions_jvm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "_DATABRICKS_DELTA", SPARK_DELTA)
    platform_of.cache_clear()
    try:
        platform = platform_of(spark)
    finally:
        platform_of.cache_clear()
    assert platform is not None
    assert platform.sign == SPARK_DELTA


def test_the_platform_and_what_follows_is_logged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    platform = found({"DATABRICKS_RUNTIME_VERSION": "17.3"})
    monkeypatch.setattr(session_checks, "platform_of", lambda _: platform)
    with caplog.at_level("INFO"):
        log_platform(spark)
    assert caplog.messages == [
        "the platform is Databricks (DATABRICKS_RUNTIME_VERSION=17.3): it commits to tables in S3 through its own "
        "service; this package was never tried there, see docs/guides/platforms.md"
    ]
