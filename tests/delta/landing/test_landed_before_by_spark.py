"""The Spark lane compares a new query's first records with what other queries have landed, in either lane."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.delta.archive import options
from tiered_stream import land
from tiered_stream.delta.commit.table_log import committed_ranges


def landed(spark: SparkSession, folder: Path, checkpoint: str, lane: str, **given: str) -> None:
    query = land(
        spark,
        options=options(given={name.replace("_", "."): value for name, value in given.items()}),
        table=str(folder / "table"),
        checkpoint=str(folder / checkpoint),
        lane=lane,
    )
    query.awaitTermination()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["direct", "spark"])
@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_new_query_of_the_spark_lane_ends_if_its_table_has_its_records(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, first: str, dead_letters: bool
) -> None:
    letters = {"ingest_onDecodeError": "deadLetter", "ingest_deadLetterTable": str(tmp_path / "dead")}
    given = letters if dead_letters else {}
    landed(spark, tmp_path, "checkpoint", first, **given)
    table = DeltaTable(tmp_path / "table")
    rows = table.to_pyarrow_table().num_rows
    with pytest.raises(StreamingQueryException, match="has offsets of this query's first records already"):
        landed(spark, tmp_path, "lost", "spark", **given)
    table.update_incremental()
    assert table.to_pyarrow_table().num_rows == rows
    with caplog.at_level(logging.WARNING):
        landed(spark, tmp_path, "again", "spark", ingest_onLandedOffsets="land", **given)
    table.update_incremental()
    assert table.to_pyarrow_table().num_rows == 2 * rows
    assert "This query lands them again" in caplog.text


def test_a_commit_of_the_spark_lane_names_its_offsets_and_the_direct_lane_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, lane in (("spark", "spark"), ("direct", "direct")):
        (tmp_path / name).mkdir()
        landed(spark, tmp_path / name, "checkpoint", lane)
    of_spark, direct = (
        committed_ranges(DeltaTable(tmp_path / name / "table").history(1)[0]["userMetadata"])
        for name in ("spark", "direct")
    )
    assert of_spark.keys() == direct.keys()
    assert all(
        offsets.start <= direct[partition].start and offsets.end >= direct[partition].end
        for partition, offsets in of_spark.items()
    )
    with pytest.raises(StreamingQueryException, match="has offsets of this query's first records already"):
        landed(spark, tmp_path / "spark", "lost", "direct")


def test_a_query_that_changes_to_the_spark_lane_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    landed(spark, tmp_path, "checkpoint", "direct", maxOffsetsPerTrigger="500")
    landed(spark, tmp_path, "checkpoint", "spark")
