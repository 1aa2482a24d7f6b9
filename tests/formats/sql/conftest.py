"""Spark's session, whose SQL is asked in UTC, and with both values of `spark.sql.ansi.enabled`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.rigs.stack.spark import configured

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"


@pytest.fixture(params=["true", "false"])
def in_utc(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with configured(spark, {ZONE: "UTC", ANSI: request.param}):
        yield spark
