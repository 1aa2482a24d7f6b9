"""A query whose table Spark has to make: planning the query makes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, landed, options
from tests.rigs.stack.spark import configured
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import Landing, plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.errors import ConfigurationError, TableError

COLUMN_MAPPING = {"spark.databricks.delta.properties.defaults.columnMapping.mode": "name"}


def planned(spark: SparkSession, folder: Path, lane: str = "auto", **given: str) -> Landing:
    """Of a query that Spark commits for."""
    settings = options(ODD, {"ingest.commit": "spark", **given})
    table, checkpoint = str(folder / "table"), str(folder / "checkpoint")
    return plan_query(spark, options=settings, table=table, run=QueryRun(checkpoint), lane=lane)


@pytest.mark.parametrize("given", [{}, {"ingest.dayColumn": "day"}, {"ingest.clusterBy": "offset"}])
def test_planning_makes_the_table_and_the_query_lands_in_it(
    spark: SparkSession, tmp_path: Path, given: dict[str, str]
) -> None:
    landing = planned(spark, tmp_path, **given)
    assert landing.lane is Lane.DIRECT and DeltaTable(tmp_path / "table").version() == 0
    landing.start().awaitTermination()
    assert landed(tmp_path / "table").equals(everything(ODD))


def test_a_query_whose_table_cannot_be_made_says_so_and_does_not_run(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "of-another").write_text("Delta makes no table beside other files")
    with pytest.raises(TableError, match="do not find it at .*: either other files are in its folder"):
        planned(spark, tmp_path)
    assert not spark.streams.active
    assert [each.name for each in (tmp_path / "table").iterdir()] == ["of-another"]
    (tmp_path / "table" / "of-another").unlink()
    planned(spark, tmp_path).start().awaitTermination()
    assert landed(tmp_path / "table").equals(everything(ODD))


def test_a_table_that_the_session_makes_with_column_mapping_is_landed_in_by_the_spark_lane(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with configured(spark, COLUMN_MAPPING):
        planned(spark, tmp_path).start().awaitTermination()
    assert "the spark lane: the table has column mapping" in caplog.text
    found = spark.read.format("delta").load(str(tmp_path / "table"))
    assert found.count() == everything(ODD).num_rows


def test_such_a_table_is_refused_where_the_direct_lane_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with configured(spark, COLUMN_MAPPING), pytest.raises(ConfigurationError, match="direct lane .*column mapping"):
        planned(spark, tmp_path, "direct")
    assert not spark.streams.active and not (tmp_path / "table").exists()
