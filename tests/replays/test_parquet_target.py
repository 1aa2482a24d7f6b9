"""A replay into a folder of Parquet files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.reading import records, rows
from tests.rigs.stack.rows import Row
from tests.tier.topics import topic_options, write_topic
from tiered_stream.errors import ConfigurationError
from tiered_stream.replays.run_replay import ReplayReport, plan_replay
from tiered_stream.replays.table_and_folder_targets import ParquetTarget

pytestmark = pytest.mark.stack

TOPIC = "replayed-to-parquet"


RECORDS = records(500)
WRITTEN = [
    Row(partition, offset, each.timestamp_ms, 0, each.key, each.value, ())
    for partition in range(2)
    for offset, each in enumerate(RECORDS)
]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bucket")
    write_topic(folder, TOPIC, [RECORDS] * 2, batch_records=100)
    return folder


def replay(bucket: Path, spark: SparkSession, folder: Path, **arguments: str) -> ReplayReport:
    options = topic_options(bucket, TOPIC, {"includeHeaders": "true", "maxOffsetsPerTrigger": "300"})
    del options["startingOffsets"]
    target = ParquetTarget(spark, str(folder), options)
    return plan_replay(target, from_time="1970-01-01T00:00:00Z", **arguments).run()


def test_the_folder_holds_what_was_written(spark: SparkSession, bucket: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    report = replay(bucket, spark, folder)
    assert report.records == len(WRITTEN)
    assert (folder / "_checkpoints").is_dir()
    assert sorted(rows(spark.read.parquet(str(folder)))) == WRITTEN
    assert replay(bucket, spark, folder).finished_before
    assert spark.read.parquet(str(folder)).count() == len(WRITTEN)


def test_a_folder_that_is_not_empty_is_refused(spark: SparkSession, bucket: Path, tmp_path: Path) -> None:
    replay(bucket, spark, tmp_path / "files", name="first")
    with pytest.raises(ConfigurationError, match="_spark_metadata.* --checkpoint"):
        replay(bucket, spark, tmp_path / "files", name="second")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"notes\.txt"):
        replay(bucket, spark, tmp_path / "other")
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["notes.txt"]
