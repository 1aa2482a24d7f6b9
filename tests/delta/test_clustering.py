"""Tables that Delta clusters (`ingest.clusterBy`): both lanes make them and land in them, and `OPTIMIZE` clusters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import LONG, everything, in_order, land_in, landed, options
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import Landing, plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.errors import ConfigurationError

BY_KEY = {"ingest.clusterBy": "topic, timestamp"}


def plan(spark: SparkSession, table: Path, given: Mapping[str, str], lane: str = "auto") -> Landing:
    return plan_query(spark, options=options(LONG, given), table=str(table), run=QueryRun("/not/yet"), lane=lane)


def clustered_by(spark: SparkSession, table: Path) -> list[str]:
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()
    return list(detail["clusteringColumns"])


def check(spark: SparkSession, table: Path) -> None:
    """All rows are there, before and after Delta has clustered them."""
    assert landed(table).equals(everything(LONG))
    (done,) = spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    assert done["metrics"]["numFilesAdded"] > 0
    assert done["metrics"]["clusteringStats"] is not None
    rows = spark.read.format("delta").load(str(table)).toArrow()
    assert in_order(rows).num_rows == everything(LONG).num_rows


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_a_new_table_is_clustered_and_each_lane_lands_in_it(spark: SparkSession, tmp_path: Path, lane: str) -> None:
    table = tmp_path / "a table"
    given = {**BY_KEY, "maxOffsetsPerTrigger": "8000"}
    land_in(tmp_path, spark, options(LONG, given), lane, "a table")
    assert clustered_by(spark, table) == ["topic", "timestamp"]
    check(spark, table)


@pytest.mark.slow
def test_one_query_makes_the_tables_of_some_topics_clustered(spark: SparkSession, tmp_path: Path) -> None:
    given = {f"ingest.topic.{LONG}.clusterBy": "offset"}
    land_in(tmp_path, spark, options(f"{LONG},s32-codecs", given), table="lake/{topic}")
    assert clustered_by(spark, tmp_path / "lake" / LONG) == ["offset"]
    assert clustered_by(spark, tmp_path / "lake" / "s32-codecs") == []
    check(spark, tmp_path / "lake" / LONG)


def test_a_table_that_is_clustered_already_takes_the_direct_lane_by_commits_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    plan(spark, table, BY_KEY)
    planned = plan(spark, table, {})
    assert (
        planned.lane is Lane.DIRECT and "spark commits (the table has clustering and domainMetadata)" in planned.reason
    )


def test_who_would_not_keep_it_clustered_does_not_commit(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the table has clustering, which ingest.commit=spark alone supports"):
        plan(spark, tmp_path / "table", {**BY_KEY, "ingest.commit": "deltalake"}, "direct")
