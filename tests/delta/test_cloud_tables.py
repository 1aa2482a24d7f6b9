"""Tables in Azure's and Google's storage, as emulators have them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import FIRST_MS, LONG, ODD, everything, in_order, options
from tests.delta.clouds import Cloud, keys
from tests.delta.committing import commit_by_two_writers, table
from tiered_stream import land, replay, verify
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.errors import ConfigurationError, TableAccessError, TableError


@pytest.fixture
def bucket(cloud: Cloud) -> str:
    """A bucket or container of the test's own."""
    name = f"lake-{uuid4().hex}"
    cloud.create(name)
    return name


def test_topics_are_landed_by_a_session_that_has_no_way_to_the_store(
    spark: SparkSession, tmp_path: Path, cloud: Cloud, bucket: str
) -> None:
    files = cloud.files(bucket, "bronze/orders")
    given = options(given={**cloud.settings(), "maxOffsetsPerTrigger": "1500", "ingest.dayColumn": "day"})
    for topics in (ODD.split(",")[0], ODD):  # the second query goes on where the first one stopped
        settings = {**given, "subscribe": topics}
        landing = plan_query(spark, options=settings, table=files.uri, run=QueryRun(str(tmp_path / "checkpoint")))
        assert landing.lane is Lane.DIRECT
        query = landing.start()
        query.awaitTermination()
    assert query.recentProgress[-1].batchId >= 3
    plan = query._jsq.explainInternal(True)
    assert in_order(table(files).to_pyarrow_table()).equals(everything(ODD))
    assert all(".parquet" in key or key.startswith("_delta_log/") for key in keys(files))
    for secret in filter(None, (cloud.storage.azure_account_key, cloud.storage.gcs_credentials_json)):
        assert secret not in plan
        assert secret not in repr(landing.opened.spec)


def test_two_writers_at_once_commit_every_record_once(cloud: Cloud, bucket: str) -> None:
    commit_by_two_writers(cloud.files(bucket, "t"))


def test_wrong_credentials_are_said_without_the_secret(spark: SparkSession, tmp_path: Path, cloud: Cloud) -> None:
    if cloud.scheme == "gs":
        pytest.skip("fake-gcs-server asks nobody for credentials")
    given = {**cloud.settings(), "ingest.storage.azure.account.key": "d3Jvbmcgc2VjcmV0"}
    with pytest.raises(TableError, match="AuthenticationFailed|AuthorizationFailure") as caught:
        land(spark, options=options(given=given), table="az://contract/t", checkpoint=str(tmp_path))
    assert "d3Jvbmcgc2VjcmV0" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_bucket_is_not_left_to_the_other_lane(spark: SparkSession, tmp_path: Path, cloud: Cloud) -> None:
    place = f"{cloud.scheme}://no-such-bucket/t"
    with pytest.raises((TableAccessError, TableError), match="no-such-bucket"):
        land(spark, options=options(given=cloud.settings()), table=place, checkpoint=str(tmp_path))


def test_the_spark_lane_says_which_connector_is_missing(spark: SparkSession, tmp_path: Path, cloud: Cloud) -> None:
    place = f"{cloud.scheme}://contract/t"
    says = "knows no az://. Write abfss://" if cloud.scheme == "az" else "gcs-connector"
    with pytest.raises(ConfigurationError, match=f"out of Spark's reach: .*{says}"):
        land(spark, options=options(given=cloud.settings()), table=place, checkpoint=str(tmp_path), lane="spark")


def test_a_replay_lands_what_lies_between_its_times_once(
    spark: SparkSession, tmp_path: Path, cloud: Cloud, bucket: str
) -> None:
    files, checkpoint = cloud.files(bucket, "bronze/orders"), str(tmp_path / "checkpoint")
    given = options(LONG, cloud.settings())
    times = {"from_time": str(FIRST_MS + 5_000), "to_time": str(FIRST_MS + 9_000)}
    report = replay(spark, options=given, into=files.uri, checkpoint=checkpoint, **times)
    assert (report.records, report.finished_before) == (4_000, False)
    assert in_order(table(files).to_pyarrow_table()).equals(everything(LONG).slice(5_000, 4_000))
    again = replay(spark, options=given, into=files.uri, checkpoint=checkpoint, **times)
    assert (again.records, again.finished_before) == (0, True)
    with pytest.raises(ConfigurationError, match="has records of a replay named .* already"):
        replay(spark, options=given, into=files.uri, checkpoint=str(tmp_path / "other"), **times)
    with pytest.raises(ConfigurationError, match="reach.*: the session"):
        verify(spark, options=given, table=files.uri)
