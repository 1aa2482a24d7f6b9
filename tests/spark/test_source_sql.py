"""The source by SQL alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, options

NAME = "by_sql"


def statement(kind: str) -> str:
    given = ", ".join(f"'{name}' '{value}'" for name, value in options(ODD).items())
    return f"CREATE {kind} {NAME} USING tiered_stream OPTIONS ({given})"


@pytest.fixture
def clean(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.sql(f"DROP VIEW IF EXISTS {NAME}")


def test_a_temporary_view_has_its_options(clean: SparkSession) -> None:
    clean.sql(statement("TEMPORARY VIEW"))
    assert clean.sql(f"SELECT * FROM {NAME}").count() == everything(ODD).num_rows
