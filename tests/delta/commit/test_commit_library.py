"""Who commits, and what a query says of it when it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.delta.archive import COLUMNS, LONG, ODD, everything, land_in, landed, options
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.spark import configured
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.commit import commit_library
from tiered_stream.delta.commit.commit_library import choose_committer
from tiered_stream.delta.landing.land import Landing, plan_query
from tiered_stream.delta.requirements.lane import Lane, TableDescription
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import ConfigurationError

LOCAL, IN_S3 = TableSpec("file:///lake/orders"), TableSpec("s3://lake/orders")
PLAIN = TableDescription(())
COMPACTED = TableDescription((), configuration={"delta.autoOptimize.autoCompact": "true"})
WIDENING = TableDescription((), configuration={"delta.enableTypeWidening": "true"})
AUTO_COMPACT = "'delta.autoOptimize.autoCompact' = 'true'"


@pytest.mark.parametrize(
    ("asked", "files", "found", "by"),
    [
        ("auto", LOCAL, PLAIN, "deltalake"),
        ("auto", LOCAL, COMPACTED, "spark"),
        ("auto", LOCAL, WIDENING, "spark"),
        ("auto", LOCAL, TableDescription((), writer_features=frozenset({"typeWidening"})), "spark"),
        ("auto", IN_S3, PLAIN, "spark"),
        ("deltalake", IN_S3, PLAIN, "deltalake"),
        ("spark", LOCAL, PLAIN, "spark"),
    ],
)
def test_who_excludes_the_sessions_other_queries_commits(
    spark: SparkSession, asked: str, files: TableSpec, found: TableDescription, by: str
) -> None:
    assert choose_committer(spark, replace(files, commit=asked), found)[0] == by


def test_a_session_without_delta_spark_commits_by_deltalake(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_library, "has_delta_spark", lambda _: False)
    chosen = choose_committer(spark, IN_S3, PLAIN)
    assert chosen == ("deltalake", "the session has no delta-spark")
    with pytest.raises(ConfigurationError, match=r"ingest\.commit is spark.* delta-spark"):
        choose_committer(spark, replace(IN_S3, commit="spark"), PLAIN)


def test_an_acl_and_a_storage_class_that_deltalake_would_not_give_are_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = replace(IN_S3.storage, acl="bucket-owner-full-control")
    files = replace(IN_S3, storage=storage)
    assert choose_committer(spark, files, PLAIN)[0] == "spark"
    with pytest.raises(ConfigurationError, match=r"^fs\.s3a\.acl\.default is bucket-owner-full-control"):
        choose_committer(spark, replace(files, commit="deltalake"), PLAIN)
    monkeypatch.setattr(commit_library, "has_delta_spark", lambda _: False)
    cold = replace(IN_S3, storage=replace(IN_S3.storage, storage_class="STANDARD_IA"))
    with pytest.raises(ConfigurationError, match=r"create\.storage\.class is STANDARD_IA.* delta-spark"):
        choose_committer(spark, cold, PLAIN)


def test_what_deltalake_does_not_honour_leads_to_the_spark_lane(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta TBLPROPERTIES ({AUTO_COMPACT})")
    landing = planned(spark, table, **{"ingest.commit": "deltalake"})
    assert landing.lane is Lane.SPARK
    assert landing.reason == "the table has delta.autoOptimize.autoCompact, which ingest.commit=spark alone supports"
    chosen = planned(spark, table)
    assert (
        chosen.lane is Lane.DIRECT and "spark commits (the table has delta.autoOptimize.autoCompact)" in chosen.reason
    )


def test_a_table_whose_columns_may_become_wider_is_sparks_to_commit_to(spark: SparkSession, tmp_path: Path) -> None:
    table, widen = str(tmp_path / "table"), {"ingest.schemaEvolution": "widen"}
    spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta")
    with pytest.raises(ConfigurationError, match=r"ALTER TABLE .* \('delta\.enableTypeWidening' ="):
        planned(spark, table, **widen)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    assert planned(spark, table, **widen).lane is Lane.DIRECT


def planned(spark: SparkSession, table: str, lane: str = "auto", **given: str) -> Landing:
    return plan_query(spark, options=options(given=given), table=table, run=QueryRun("/not/yet"), lane=lane)


@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_columns_that_become_null_are_said(spark: SparkSession, tmp_path: Path, lane: str) -> None:
    table = str(tmp_path / "table")
    filled = "day DATE GENERATED ALWAYS AS (CAST(timestamp AS DATE))" if lane == "spark" else "region STRING"
    spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}, note STRING, {filled}) USING delta")
    names = "note" if lane == "spark" else "note, region"
    assert planned(spark, table, lane).reason.endswith(f"; NULL in {names}, which records do not have")


def test_sparks_delta_commits_a_landing(spark: SparkSession, tmp_path: Path) -> None:
    given = {"maxOffsetsPerTrigger": "1500", "ingest.commit": "spark", "ingest.dayColumn": "day"}
    land_in(tmp_path, spark, options(given=given))
    assert landed(tmp_path / "table").equals(everything(ODD))
    operations = {entry["operation"] for entry in DeltaTable(tmp_path / "table").history()}
    assert operations == {"CREATE TABLE", "STREAMING UPDATE"}


@pytest.mark.parametrize("by", ["spark", "deltalake"])
def test_a_batch_that_the_table_has_lost_is_named_at_the_next_start(
    spark: SparkSession, tmp_path: Path, by: str
) -> None:
    settings = options(LONG, {"maxOffsetsPerTrigger": "10000", "ingest.commit": by})
    land_in(tmp_path, spark, settings)
    log = tmp_path / "table" / "_delta_log"
    done = sorted(int(file.name) for file in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    last = sorted(log.glob("0*.json"))[-1]
    last.write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE","operationParameters":{}}}\n')
    for other in log.glob(f"*{last.stem}*crc"):
        other.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # as in a new process
    (tmp_path / "checkpoint" / "offsets" / str(done[-1] + 1)).write_text(
        (tmp_path / "checkpoint" / "offsets" / str(done[-1])).read_text()
    )
    with pytest.raises(StreamingQueryException, match=rf"batch {done[-1]} of .*offsets from .*{LONG}.* to .*18687"):
        land_in(tmp_path, spark, settings)
    land_in(tmp_path, spark, {**settings, "failOnDataLoss": "false"})


@pytest.mark.slow
def test_in_s3_sparks_delta_commits_to_a_table_that_others_write_to(
    spark: SparkSession, tmp_path: Path, lake: VersityGateway
) -> None:
    lake.client().create_bucket(Bucket="shared-table")
    table = "s3a://shared-table/orders"
    with configured(spark, s3a_settings(lake.endpoint, lake.access_key, lake.secret_key, "shared-table")):
        for limit in ("1500", "3000"):
            given = options(given={"maxOffsetsPerTrigger": limit, "ingest.onLandedOffsets": "land"})
            checkpoint = str(tmp_path / f"checkpoint {limit}")
            land(spark, options=given, table=table, checkpoint=checkpoint, lane="direct").awaitTermination()
            spark.sql(f"OPTIMIZE delta.`{table}`")
        history = [row["operation"] for row in spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()]
        assert spark.read.format("delta").load(table).count() == 2 * everything(ODD).num_rows
    assert history.count("OPTIMIZE") == 2 and history.count("STREAMING UPDATE") > 5 and "WRITE" not in history
