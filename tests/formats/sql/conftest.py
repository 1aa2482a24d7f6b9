"""Spark's session, whose SQL is asked in UTC, and with both values of `spark.sql.ansi.enabled`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"


@pytest.fixture(params=["true", "false"])
def in_utc(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in (ZONE, ANSI)}
    spark.conf.set(ZONE, "UTC")
    spark.conf.set(ANSI, request.param)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "")
