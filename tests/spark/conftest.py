"""Choice of the tests that the installed Spark has the classes for, and a name for tables in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.abilities import PUSHED_FILTERS

collect_ignore = [] if PUSHED_FILTERS.present else ["test_pushdown.py"]


@pytest.fixture
def name(spark: SparkSession, topic: str) -> Iterator[str]:
    """Of a query, and of its table in memory."""
    table = topic.replace("-", "_")
    yield table
    spark.catalog.dropTempView(table)
