"""SQL by which rows are merged; `test_latest_state.py` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.rigs.stack.spark import configured
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, raised_text
from tiered_stream.delta.commit.merge import last_rows_sql, merge_clauses, merge_sql


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


def test_a_row_is_found_by_all_of_its_keys_and_the_users_condition() -> None:
    text = merge_sql(
        "shop.`orders`",
        "rows",
        merge_clauses(["id", "a`b"], ["country", "id"], None, "target.day > 1 OR source.x"),
    )
    assert (
        "MERGE INTO shop.`orders` AS target USING rows AS source ON "
        "target.`country` = source.`country` AND target.`id` = source.`id` AND (target.day > 1 OR source.x) WHEN"
    ) in text
    assert "UPDATE SET target.`id` = source.`id`, target.`a``b` = source.`a``b` WHEN NOT MATCHED" in text
    assert "`at`" not in text


def test_an_older_row_neither_updates_nor_deletes() -> None:
    text = merge_sql("t", "rows", merge_clauses(["id", "at"], ["id"], "at", None))
    late = "AND (target.`at` IS NULL OR source.`at` >= target.`at`)"
    assert f"WHEN MATCHED AND source.__staged_delete {late} THEN DELETE" in text
    assert f"WHEN MATCHED AND NOT source.__staged_delete {late} THEN UPDATE" in text


def test_only_keys_without_an_order_may_not_be_in_several_partitions() -> None:
    for order_by, one, checked in ((None, False, True), (None, True, False), ("at", False, False)):
        ranked, last = last_rows_sql(["id"], ["id"], order_by, one=one)
        assert any("raise_error" in text for text in last) is checked
        assert ("ORDER BY `at` DESC, " in ranked[0]) is (order_by is not None)


def test_a_row_of_another_partition_is_neither_updated_nor_deleted() -> None:
    clauses = merge_clauses(["id", "p"], ["id"], None, None, ["t", "p"])
    text = merge_sql("t", "rows", clauses)
    assert text.index("WHEN target.`t` <> source.`t` OR target.`p` <> source.`p` THEN CAST(raise_error(") < text.index(
        "WHEN MATCHED AND source.__staged_delete THEN DELETE"
    )


def test_rows_of_an_empty_table_are_not_looked_for() -> None:
    text = merge_sql("t", "rows", merge_clauses(["id"], ["id"], None, None), only_insert=True)
    assert "WHEN MATCHED" not in text
    assert "ON target.`id` = source.`id` AND raise_error(" in text
    assert text.endswith("WHEN NOT MATCHED AND NOT source.__staged_delete THEN INSERT (`id`) VALUES (source.`id`)")
