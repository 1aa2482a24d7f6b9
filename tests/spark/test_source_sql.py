"""The source by SQL alone."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, options


def test_a_temporary_view_has_its_options(spark: SparkSession) -> None:
    given = ", ".join(f"'{name}' '{value}'" for name, value in options(ODD).items())
    spark.sql(f"CREATE TEMPORARY VIEW by_sql USING tiered_stream OPTIONS ({given})")
    try:
        assert spark.table("by_sql").count() == everything(ODD).num_rows
    finally:
        spark.catalog.dropTempView("by_sql")
