"""A replay into a folder of Parquet files, on the real stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.reading import records, rows
from tests.stack.consume import read_topic
from tests.stack.produce import RawProducer
from tests.stack.rows import Row
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, roll, wait_until_tiered
from tiered_stream.errors import ConfigurationError
from tiered_stream.replay.run_replay import ReplayReport, plan_replay
from tiered_stream.replay.targets import ParquetTarget

pytestmark = pytest.mark.stack

TOPIC = "replayed-to-parquet"


@pytest.fixture(scope="module")
def consumed(stack: TieredStack) -> list[Row]:
    create_tiered_topic(stack.broker, TOPIC, 2)
    with RawProducer(stack.broker) as producer:
        for partition in range(2):
            producer.send_all(TOPIC, records(500), partition)
    roll(stack.broker, TOPIC)
    wait_until_tiered(stack.broker, TOPIC)
    return read_topic(stack.broker, TOPIC)


def replay(stack: TieredStack, spark: SparkSession, folder: Path, **arguments: str) -> ReplayReport:
    options = {**stack.options(), "subscribe": TOPIC, "includeHeaders": "true", "maxOffsetsPerTrigger": "300"}
    target = ParquetTarget(spark, str(folder))
    return plan_replay(spark, options=options, target=target, from_time="1970-01-01T00:00:00Z", **arguments).run()


def test_the_folder_holds_what_a_consumer_finds(
    stack: TieredStack, spark: SparkSession, consumed: list[Row], tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    report = replay(stack, spark, folder)
    assert report.records == len(consumed)
    assert (folder / "_checkpoints").is_dir()
    assert sorted(rows(spark.read.parquet(str(folder)))) == sorted(consumed)
    assert replay(stack, spark, folder).finished_before
    assert spark.read.parquet(str(folder)).count() == len(consumed)


def test_a_folder_that_is_not_empty_is_refused(
    stack: TieredStack, spark: SparkSession, consumed: list[Row], tmp_path: Path
) -> None:
    replay(stack, spark, tmp_path / "files", name="first")
    with pytest.raises(
        ConfigurationError, match=r"is not empty \(it has _spark_metadata\): give a new one, or the --ch"
    ):
        replay(stack, spark, tmp_path / "files", name="second")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"is not empty \(it has notes.txt\)"):
        replay(stack, spark, tmp_path / "other")
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["notes.txt"]
