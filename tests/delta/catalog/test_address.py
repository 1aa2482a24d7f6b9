"""Tables that Spark makes at a path."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tiered_stream.delta.catalog.address import create_by_spark, find_address
from tiered_stream.delta.settings.ingest_settings import TableSpec

LEFT = "_delta_log/.00000000000000000000.json.a222257f-dd56-49be-82e4-505f6a8191a1.tmp"
"""What a driver leaves that dies in the first commit of a table."""


def create(spark: SparkSession, table: Path) -> None:
    target = TableSpec("", columns=StructType.fromDDL("id BIGINT"))
    create_by_spark(spark, find_address(spark, str(table)), target)


def test_a_table_is_made_after_a_driver_died_while_it_made_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    (table / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (table / LEFT).write_text("{}")
    create(spark, table)
    assert spark.read.format("delta").load(str(table)).columns == ["id"]
    assert not (table / LEFT).exists()


@pytest.mark.parametrize("other", ["mine.parquet", "_delta_log/_staged_commits/1.json", "_delta_log/_last_checkpoint"])
def test_a_folder_with_other_files_is_left_alone(spark: SparkSession, tmp_path: Path, other: str) -> None:
    for name in (LEFT, other):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    create(spark, tmp_path)
    assert (tmp_path / LEFT).exists() and (tmp_path / other).exists()
