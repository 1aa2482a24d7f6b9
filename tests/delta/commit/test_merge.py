"""Errors that a MERGE raises; `test_latest_state.py` has what it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.rigs.stack.spark import configured
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, raised_text
from tiered_stream.delta.commit.merge import merge_clauses, merge_sql


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("is_analyzed", [True, False])
def test_a_text_of_raise_error_is_found_only_if_it_was_raised(
    spark: SparkSession, tmp_path: Path, is_analyzed: bool, adaptive: str
) -> None:
    """Spark prints a plan that it cannot analyze, and the text is in the plan of each first MERGE."""
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, s STRUCT<a: INT>) USING delta")
    spark.sql(f"INSERT INTO {table} SELECT 1L, struct(1 AS a)")
    wrong = "1"
    spark.sql(f"SELECT 1L AS id, {'struct(2 AS a)' if is_analyzed else wrong} AS s, false AS __staged_delete"
              ).createOrReplaceTempView("found_rows")  # fmt: skip
    text = merge_sql(table, "found_rows", merge_clauses(["id", "s"], ["id"], None, None), only_insert=True)
    # Without adaptive execution, the error comes from within a broadcast or not, as Spark happens to plan the join.
    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}), pytest.raises(JAVA_ERRORS) as caught:
        spark.sql(text)
    assert isinstance(caught.value, AnalysisException) is not is_analyzed
    assert "the table has rows: " in str(caught.value)
    assert raised_text(caught.value) == ("tiered_stream: the table has rows: 1" if is_analyzed else None)
