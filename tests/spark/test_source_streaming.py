"""The streaming source: limits on an archive; triggers, restarts, and topics that change on the real stack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.reading import (
    build_segments,
    end_offsets,
    fill,
    located_ends,
    options,
    records,
    run_available_now,
    run_in_memory,
    stream,
)
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, recreate_topic
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


@pytest.fixture
def name(spark: SparkSession, topic: str) -> Iterator[str]:
    """Of a query, and of its table in memory."""
    table = topic.replace("-", "_")
    yield table
    spark.catalog.dropTempView(table)


def offsets_in(spark: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in spark.table(table).select("partition", "offset").collect())


@SEVERAL_BATCHES.needed
def test_a_limit_below_a_segment_cuts_inside_it(spark: SparkSession, segments: dict[str, str], name: str) -> None:
    progress = run_in_memory(stream(spark, {**segments, "maxOffsetsPerTrigger": "200"}), name)
    assert offsets_in(spark, name) == [(0, offset) for offset in range(1201)]
    assert [end_offsets(each)[0] for each in progress] == [200, 300, 500, 600, 800, 900, 1100, 1201]


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


@SEVERAL_BATCHES.needed
@pytest.mark.contract("1.8 where a share ends")
def test_a_limit_above_a_segment_lets_batches_end_with_segments(
    spark: SparkSession, segments: dict[str, str], name: str
) -> None:
    progress = run_in_memory(stream(spark, {**segments, "maxOffsetsPerTrigger": "400"}), name)
    assert offsets_in(spark, name) == [(0, offset) for offset in range(1201)]
    *ends, last = [end_offsets(each)[0] for each in progress]
    assert (ends, last) == ([300, 600, 900], 1201)
    assert set(ends) <= set(located_ends(segments, FOUR, last))


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


@pytest.mark.contract("1.6 topic made again and longer")
def test_a_topic_that_is_made_again_during_the_query_is_data_loss(
    stack: TieredStack, spark: SparkSession, topic: str, name: str
) -> None:
    fill(stack, topic, records(10))
    patient = {"fetchOffset.numRetries": "100", "fetchOffset.retryIntervalMs": "100"}
    query = stream(spark, options(stack, topic, patient)).writeStream.format("memory").queryName(name).start()
    query.processAllAvailable()
    recreate_topic(stack.broker, topic)
    produce_batch(stack.broker, topic, records(20))
    with pytest.raises(StreamingQueryException, match=rf"KAFKA_DATA_LOSS\.TOPIC_RECREATED.*{topic} "):
        query.awaitTermination(60)
    assert offsets_in(spark, name) == [(0, offset) for offset in range(10)]


@SEVERAL_BATCHES.needed
def test_a_bounded_stream_ends_with_available_now_and_idles_at_its_end_with_another_trigger(
    spark: SparkSession, segments: dict[str, str], name: str
) -> None:
    ending = {"boundedStreaming": "true", "endingOffsets": f'{{"{FOUR}":{{"0":700}}}}'}
    frame = stream(spark, {**segments, **ending, "maxOffsetsPerTrigger": "400"})
    progress = run_in_memory(frame, name)
    assert [end_offsets(each)[0] for each in progress] == [300, 700]

    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        assert query.isActive
        assert offsets_in(spark, name) == [(0, offset) for offset in range(700)]
    finally:
        query.stop()


@SEVERAL_BATCHES.needed
def test_a_limit_in_bytes_lets_batches_end_with_the_segments_that_fit(
    spark: SparkSession, segments: dict[str, str], name: str
) -> None:
    """A segment has 300 records of some 40 bytes in one batch: it is read whole or not at all."""
    bucket = Path(unquote(urlsplit(segments["remote.storage.uri"]).path))
    size = max(path.stat().st_size for path in bucket.rglob("*.log"))
    given = {"maxBytesPerTrigger": str(2 * size + size // 2)}
    progress = run_in_memory(stream(spark, {**segments, **given}), name)
    assert offsets_in(spark, name) == [(0, offset) for offset in range(1201)]
    assert [end_offsets(each)[0] for each in progress] == [600, 1201]
