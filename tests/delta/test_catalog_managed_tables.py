"""`land`, `replay` and `verify` leave a table that a catalog manages alone, or to Spark's Delta."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import COLUMNS, ODD, everything, in_order, options
from tests.delta.managed_tables import PRESENT, SPELLINGS, make_managed, take_over, versions
from tiered_stream import land, verify
from tiered_stream.delta.catalog.address import find_address
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTable
from tiered_stream.delta.commit.transaction import UncertainCommitError
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.delta.requirements.lane import Lane, unmet_requirements
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.replays.run_replay import plan_replay
from tiered_stream.replays.table_and_folder_targets import DeltaTarget

VERIFIED = {name: value for name, value in options().items() if name not in ("includeHeaders", "startingOffsets")}
_BATCH_OF_COMMITS = 100
"""Number of commits after which the coordinator copies commits to the log folder."""
ALL_TIMES = {"from_time": "1600000000000"}
TIMES = {"from_time": "1700000000000", "to_time": "1700000009000"}


@pytest.fixture
def named(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A table in the catalog, and its folder."""
    folder = tmp_path / "named"
    spark.sql(f"CREATE TABLE orders_by_name ({COLUMNS}) USING delta LOCATION '{folder}'")
    yield "orders_by_name", folder
    spark.sql("DROP TABLE orders_by_name")


@pytest.mark.parametrize("feature", SPELLINGS)
@pytest.mark.parametrize("committer", ["auto", "deltalake", "spark"])
@pytest.mark.parametrize("lane", ["auto", "direct"])
def test_a_path_of_such_a_table_is_refused_by_the_name_of_the_feature(
    spark: SparkSession, tmp_path: Path, feature: str, committer: str, lane: str
) -> None:
    table = tmp_path / "table"
    make_managed(table, feature)
    given = options(given={"ingest.commit": committer, "ingest.schemaEvolution": "add"})
    with pytest.raises(ConfigurationError, match=rf"the feature {feature}: .* by its name in the catalog"):
        land(spark, options=given, table=str(table), checkpoint=str(tmp_path / "checkpoint"), lane=lane)
    assert versions(table) == [0]
    assert [file.name for file in table.iterdir()] == ["_delta_log"]


@pytest.fixture
def managed(spark: SparkSession, named: tuple[str, Path]) -> Iterator[tuple[str, Path]]:
    """A table that the catalog has taken over; Delta's own coordinator in memory takes the catalog's part."""
    jvm: Any = spark._jvm
    coordination = jvm.org.apache.spark.sql.delta.coordinatedcommits
    provider = getattr(getattr(coordination, "CatalogOwnedCommitCoordinatorProvider$"), "MODULE$")
    provider.registerBuilder("spark_catalog", coordination.InMemoryCommitCoordinatorBuilder(_BATCH_OF_COMMITS))
    take_over(named[1])
    yield named
    provider.clearBuilders()


@pytest.mark.slow
def test_a_table_that_the_sessions_catalog_manages_is_landed_by_its_name(
    spark: SparkSession, tmp_path: Path, managed: tuple[str, Path]
) -> None:
    name, folder = managed
    landing = plan_query(spark, options=options(), table=name, run=QueryRun(str(tmp_path / "checkpoint")))
    assert landing.lane is Lane.SPARK
    assert f"has the feature {PRESENT}" in landing.reason
    landing.start().awaitTermination()
    assert versions(folder) == [0, 1]  # the catalog keeps newer versions, which files in the log folder lack
    assert in_order(spark.table(name).toArrow()).equals(everything(ODD))
    assert verify(spark, options=VERIFIED, table=name).equal
    with pytest.raises(ConfigurationError, match=rf"the direct lane cannot write to {name}: .* {PRESENT}"):
        plan_query(spark, options=options(), table=name, run=QueryRun("/not/yet"), lane="direct")


@pytest.mark.slow
def test_a_replay_into_a_table_that_the_catalog_manages(spark: SparkSession, managed: tuple[str, Path]) -> None:
    name, folder = managed
    target = DeltaTarget(spark, name, options(), "auto")
    plan_replay(target, **ALL_TIMES).run()
    assert versions(folder) == [0, 1]
    assert in_order(spark.table(name).toArrow()).equals(everything(ODD))


@pytest.mark.slow
def test_dead_letters_and_new_columns_of_a_table_that_the_catalog_manages(
    spark: SparkSession, tmp_path: Path, managed: tuple[str, Path]
) -> None:
    name, folder = managed
    dead, given = str(tmp_path / "dead"), {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT"}
    given |= {"ingest.schemaEvolution": "add", "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": dead}
    given |= {"ingest.kafkaColumns": "topic, partition, offset"}
    land(spark, options=options(given=given), table=name, checkpoint=str(tmp_path / "checkpoint")).awaitTermination()
    assert versions(folder) == [0, 1]
    counts = spark.table(name).count(), spark.read.format("delta").load(dead).count()
    assert sum(counts) == len(everything(ODD))
    assert counts[1] > 0
    assert "id" in spark.table(name).columns


def test_delta_spark_commits_no_files_of_ours_to_a_table_that_the_catalog_manages(
    spark: SparkSession, managed: tuple[str, Path]
) -> None:
    name, _ = managed
    state = DeltaSparkTable(spark, find_address(spark, name)).begin().state
    assert (
        unmet_requirements(state.description)
        == f"the table has the feature {PRESENT}: its commits go through a catalog"
    )


@pytest.mark.parametrize("feature", SPELLINGS)
def test_delta_spark_opens_no_path_of_such_a_table_and_tries_once(
    spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    make_managed(tmp_path, feature)
    with pytest.raises(TableError) as raised:
        DeltaSparkTable(spark, find_address(spark, str(tmp_path))).begin()
    assert not isinstance(raised.value, UncertainCommitError)
    assert versions(tmp_path) == [0]


def test_a_replay_into_such_a_table_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    make_managed(tmp_path)
    settings = options()
    for lane in ("auto", "direct", "spark"):
        target = DeltaTarget(spark, str(tmp_path), settings, lane)
        with pytest.raises((ConfigurationError, TableError), match=r"(?i)catalog-managed|catalogManaged"):
            plan_replay(target, **TIMES)
    assert versions(tmp_path) == [0]


def test_a_path_of_such_a_table_is_not_verified(spark: SparkSession, tmp_path: Path) -> None:
    make_managed(tmp_path)
    with pytest.raises(TableError, match=r"(?i)access the table via its name"):
        verify(spark, options=options(), table=str(tmp_path))


@pytest.mark.slow
def test_rows_that_spark_replaces_and_appends_are_written_by_the_tables_name(
    spark: SparkSession, tmp_path: Path, named: tuple[str, Path]
) -> None:
    name, _ = named
    target = DeltaTarget(spark, name, options(), "spark")
    plan = plan_replay(target, replace=True, **ALL_TIMES)
    plan.run()
    rows = spark.table(name).toArrow()
    assert in_order(rows).equals(everything(ODD))
