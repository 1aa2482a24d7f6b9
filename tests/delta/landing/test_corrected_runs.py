"""A first run that failed, or that began twice at once, does not keep a corrected run from its table."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.errors import ConfigurationError, TableError

TOPIC = "corrected"
WRONG, RIGHT = "id BIGINT, name STRING", "id STRING, name STRING"
BY_ID, BY_NAME = {"ingest.clusterBy": "id"}, {"ingest.clusterBy": "name"}


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    values = [b'{"id":"a%d","name":"n"}' % number for number in range(50)]
    write_topic(tmp_path / "bucket", TOPIC, [[Record(None, value, (), 1_700_000_000_000) for value in values]])
    return tmp_path / "bucket"


def run(spark: SparkSession, bucket: Path, schema: str, lane: str, given: Mapping[str, str] | None = None) -> None:
    options = {"ingest.value.format": "json", "ingest.value.schema": schema, **(given or {})}
    land(
        spark,
        options=topic_options(bucket, TOPIC, options),
        table=str(bucket.parent / "table"),
        checkpoint=str(bucket.parent / "checkpoint"),
        lane=lane,
    ).awaitTermination()


@pytest.mark.parametrize("lane", ["direct", "spark"])
@pytest.mark.parametrize(
    "given", [{}, {"ingest.commit": "spark", "ingest.tableProperty.delta.checkpointInterval": "7"}]
)
def test_a_corrected_schema_lands_after_a_first_run_that_failed(
    spark: SparkSession, bucket: Path, lane: str, given: Mapping[str, str]
) -> None:
    with pytest.raises(StreamingQueryException):
        run(spark, bucket, WRONG, lane, given)
    run(spark, bucket, RIGHT, lane, {**given, "ingest.dayColumn": "day"})
    table = DeltaTable(bucket.parent / "table")
    assert table.to_pyarrow_table().num_rows == 50
    assert table.metadata().partition_columns == ["day"]
    prefix = "ingest.tableProperty."
    properties = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    assert table.metadata().configuration == properties
    if lane == "direct":
        with pytest.raises(ConfigurationError, match="has id as string"):  # now the table has rows
            run(spark, bucket, WRONG, lane, given)


@pytest.mark.parametrize(
    ("lane", "clustered", "corrected"),
    [("direct", {}, BY_ID), ("spark", {}, BY_ID), ("direct", BY_NAME, BY_ID), ("spark", BY_NAME, {})],
)
def test_corrected_properties_and_clustering_are_those_of_the_table(
    spark: SparkSession, bucket: Path, lane: str, clustered: Mapping[str, str], corrected: Mapping[str, str]
) -> None:
    def settings(given: Mapping[str, str]) -> dict[str, str]:
        return {"ingest.commit": "spark", **{f"ingest.tableProperty.{name}": value for name, value in given.items()}}

    first = {"ingest.value.format": "json", "ingest.value.schema": WRONG, **clustered}
    options = topic_options(bucket, TOPIC, first | settings({"delta.checkpointInterval": "7"}))
    plan_query(spark, options=options, table=str(bucket.parent / "table"), run=QueryRun("/not/yet"), lane=lane)
    asked = {"delta.checkpointInterval": "9", "delta.appendOnly": "true"}
    run(spark, bucket, RIGHT, lane, settings(asked) | corrected)
    table = DeltaTable(bucket.parent / "table")
    assert (table.to_pyarrow_table().num_rows, table.metadata().configuration) == (50, asked)
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{bucket.parent / 'table'}`").collect()
    assert list(detail["clusteringColumns"]) == list(corrected.values())


def test_a_table_that_anything_else_has_changed_is_not_replaced(spark: SparkSession, bucket: Path) -> None:
    with pytest.raises(StreamingQueryException):
        run(spark, bucket, WRONG, "direct")
    table = f"delta.`{bucket.parent / 'table'}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT short CHECK (length(name) < 10)")
    with pytest.raises(ConfigurationError, match="has id as long"):
        run(spark, bucket, RIGHT, "direct")


@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_two_first_runs_at_once_say_what_happened_and_land_once(spark: SparkSession, bucket: Path, lane: str) -> None:
    both = threading.Barrier(2)
    errors: list[Exception] = []

    def begin() -> None:
        both.wait()
        try:
            run(spark, bucket, RIGHT, lane)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:  # Spark stops the first run if the second starts in the same session, and the second may still fail
        run(spark, bucket, RIGHT, lane)
    assert DeltaTable(bucket.parent / "table").to_pyarrow_table().num_rows == 50, errors
    assert all(isinstance(error, (TableError, StreamingQueryException)) for error in errors), errors
    for error in errors:
        assert "a checkpoint is for one query" in str(error) or "concurrent" in str(error).lower(), error
