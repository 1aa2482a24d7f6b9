"""A query whose table Spark has to make: the table is made while the query starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, landed, options
from tiered_stream.delta.landing import land as landings
from tiered_stream.delta.landing.land import Landing, plan_landing, plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.errors import ConfigurationError, TableError

COLUMN_MAPPING = "spark.databricks.delta.properties.defaults.columnMapping.mode"


def planned(spark: SparkSession, folder: Path, lane: str = "auto", **given: str) -> Landing:
    """Of a query that Spark commits for."""
    landing = plan_query(
        spark,
        options=options(ODD, {"ingest.commit": "spark", **given}),
        table=str(folder / "table"),
        checkpoint=str(folder / "checkpoint"),
        lane=lane,
    )
    assert isinstance(landing, Landing)
    return landing


@contextmanager
def made_with(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """What else a table of the session gets that is made."""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.mark.parametrize("given", [{}, {"ingest.dayColumn": "day"}, {"ingest.clusterBy": "offset"}])
def test_it_is_made_at_the_start_and_is_as_it_was_planned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    landing = planned(spark, tmp_path, **given)
    assert landing.lane is Lane.DIRECT and not (tmp_path / "table").exists()
    monkeypatch.setattr(landings, "_plan_landing", None)  # it is not planned again
    landing.start().awaitTermination()
    assert landed(tmp_path / "table").equals(everything(ODD))


def test_a_query_whose_table_cannot_be_made_says_so_and_does_not_run(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "of-another").write_text("Delta makes no table beside other files")
    landing = planned(spark, tmp_path)
    with pytest.raises(TableError, match="do not find it at .*: either other files are in its folder"):
        landing.start()
    assert not spark.streams.active
    assert [each.name for each in (tmp_path / "table").iterdir()] == ["of-another"]
    (tmp_path / "table" / "of-another").unlink()
    planned(spark, tmp_path).start().awaitTermination()
    assert landed(tmp_path / "table").equals(everything(ODD))


def test_one_that_becomes_another_than_was_planned_is_landed_in_by_the_lane_that_it_allows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing = planned(spark, tmp_path)
    with made_with(spark, COLUMN_MAPPING, "name"):
        landing.start().awaitTermination()
    assert "the spark lane: the column key has a physical name of its own" in caplog.text
    found = spark.read.format("delta").load(str(tmp_path / "table"))
    assert found.count() == everything(ODD).num_rows


def test_one_that_becomes_another_is_refused_where_the_direct_lane_was_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = planned(spark, tmp_path, "direct")
    with (
        made_with(spark, COLUMN_MAPPING, "name"),
        pytest.raises(ConfigurationError, match="the direct lane cannot write to .*column mapping"),
    ):
        landing.start()
    assert not spark.streams.active


def test_one_that_another_query_makes_meanwhile_is_shared(spark: SparkSession, tmp_path: Path) -> None:
    landing = planned(spark, tmp_path)
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/table` (key BINARY, value BINARY, offset BIGINT NOT NULL, topic STRING, "
              "partition INT, timestamp TIMESTAMP, timestampType INT, headers "
              "ARRAY<STRUCT<key: STRING, value: BINARY>>) USING delta")  # fmt: skip
    landing.start().awaitTermination()
    assert landed(tmp_path / "table").equals(everything(ODD))


def test_who_plans_a_landing_finds_its_table_made(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    plan_landing(spark, options=options(given={"ingest.commit": "spark"}), table=table, checkpoint="/not/yet")
    assert DeltaTable(table).version() == 0
