"""The streaming source: limits on an archive; triggers, restarts, and topics that change on the real stack."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession

from tests.reading import (
    build_segments,
    end_offsets,
    options,
    records,
    run_available_now,
    run_in_memory,
    stream,
)
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic
from tests.spark.abilities import SEVERAL_BATCHES
from tests.tier.topics import topic_options

SEGMENTS = [300, 300, 300, 300]


FOUR = "four-segments"


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options that read a topic with four segments of 300 records, and one of a record."""
    bucket = tmp_path_factory.mktemp("bucket")
    build_segments(bucket, FOUR, SEGMENTS)
    return topic_options(bucket, FOUR, {"includeHeaders": "true"})


def offsets_in(spark: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in spark.table(table).select("partition", "offset").collect())


BOUNDED = {"boundedStreaming": "true", "endingOffsets": f'{{"{FOUR}":{{"0":700}}}}', "maxOffsetsPerTrigger": "400"}


@SEVERAL_BATCHES.needed
@pytest.mark.contract("1.8 where a share ends")
@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ({"maxOffsetsPerTrigger": "200"}, [200, 300, 500, 600, 800, 900, 1100, 1201]),
        ({"maxOffsetsPerTrigger": "400"}, [300, 600, 900, 1201]),
        ({"maxBytesPerTrigger": "{}"}, [600, 1201]),  # two and a half segments: one batch has each whole
        (BOUNDED, [300, 700]),
    ],
)
def test_batches_end_with_the_segments_that_fit_into_a_limit_or_within_one(
    spark: SparkSession, segments: dict[str, str], name: str, given: dict[str, str], ends: list[int]
) -> None:
    bucket = Path(unquote(urlsplit(segments["remote.storage.uri"]).path))
    size = max(path.stat().st_size for path in bucket.rglob("*.log"))
    limited = {option: str(5 * size // 2) if value == "{}" else value for option, value in given.items()}
    progress = run_in_memory(stream(spark, {**segments, **limited}), name)
    assert offsets_in(spark, name) == [(0, offset) for offset in range(ends[-1])]
    assert [end_offsets(each)[0] for each in progress] == ends


def test_runs_with_a_limit_land_every_record_once_however_many_batches_spark_gives_a_run(
    spark: SparkSession, segments: dict[str, str], tmp_path: Path
) -> None:
    limited = stream(spark, {**segments, "maxOffsetsPerTrigger": "400"})
    batches: list[int] = []
    while new := run_available_now(limited, tmp_path / "table", tmp_path / "checkpoint"):
        batches += [progress.numInputRows for progress in new]
    assert sum(batches) == 1201 and max(batches) <= 400
    landed = spark.read.format("delta").load(str(tmp_path / "table")).select("offset").collect()
    assert sorted(row.offset for row in landed) == list(range(1201))


@pytest.mark.contract("2.1", "2.19")
def test_rows_that_come_while_a_latest_query_is_stopped_are_read(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2)
    produce_batch(stack.broker, topic, records(10), partition=0)
    frame = stream(spark, options(stack, topic, {"startingOffsets": "latest"}))
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))

    query = writer.trigger(processingTime="100 milliseconds").start(str(tmp_path / "table"))
    wait_until((tmp_path / "checkpoint" / "commits" / "0").exists, "the first batch", pause=0.05)
    query.stop()
    produce_batch(stack.broker, topic, records(7, first=10), partition=0)
    produce_batch(stack.broker, topic, records(5), partition=1)

    query = writer.start(str(tmp_path / "table"))
    query.processAllAvailable()
    produce_batch(stack.broker, topic, records(3, first=5), partition=1)
    query.processAllAvailable()
    query.stop()
    table = spark.read.format("delta").load(str(tmp_path / "table"))
    found = sorted((row[0], row[1]) for row in table.select("partition", "offset").collect())
    assert found == [(0, offset) for offset in range(10, 17)] + [(1, offset) for offset in range(8)]


@SEVERAL_BATCHES.needed
def test_a_bounded_stream_idles_at_its_end_without_available_now(
    spark: SparkSession, segments: dict[str, str], name: str
) -> None:
    frame = stream(spark, {**segments, **BOUNDED})
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        assert query.isActive
        assert offsets_in(spark, name) == [(0, offset) for offset in range(700)]
    finally:
        query.stop()
