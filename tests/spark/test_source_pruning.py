"""Filters, limits and columns of batch queries on the real stack: what is fetched for them, and the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.counted_gets import CountedGets, Get
from tests.reading import FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS, batch, options, run_in_memory, stream, tier_segments
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.s3proxy import S3Proxy
from tests.rigs.stack.spark import configured
from tests.rigs.stack.tiered_stack import TieredStack
from tests.spark.abilities import PUSHED_FILTERS
from tests.tier.layouts import PLAIN, put
from tests.tier.segments import tiered
from tests.tier.topics import topic_options
from tiered_stream.model import TopicPartition

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SEGMENTS = 8


@pytest.fixture(scope="module")
def gets(stack: TieredStack) -> Iterator[CountedGets]:
    with closing(CountedGets(stack.s3proxy.port)) as proxy:
        yield proxy


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {PUSHDOWN: "true"}):
        yield


@pytest.fixture(scope="module")
def segments(stack: TieredStack) -> str:
    """A topic of two partitions with eight tiered segments each, of ten records, ten seconds apart; and a tail."""
    tier_segments(stack, "eight-segments", [10] * SEGMENTS, partitions=2)
    return "eight-segments"


def pruned(stack: TieredStack, spark: SparkSession, topic: str, gets: CountedGets, **given: str) -> DataFrame:
    gets.gets.clear()
    through = {"remote.storage.s3.endpoint.url": gets.url, "remote.filter.pushdown": "true"}
    return batch(spark, options(stack, topic, {**through, **given}))


def found(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def logs(gets: CountedGets) -> list[str]:
    """The segments of which anything was fetched."""
    return sorted({get.key for get in gets.gets if get.name.endswith(".log")})


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("timestamp >= timestamp_millis({} + 70000)", 2),
        ("timestamp > timestamp_millis({} + 70000)", 0),
        ("timestamp = timestamp_millis({} + 70000)", 2),
        ("timestamp in (timestamp_millis({} + 70000), null) and partition = 1", 1),
        ("timestamp <=> timestamp_millis({} + 70000)", 2),
        ("timestamp >= '2023-11-14 14:14:30 America/Los_Angeles'", 2),
        ("timestamp >= '2023-11-15 03:59:30'", 2),
        ("timestamp < timestamp_millis({} + 10000)", 16),
        ("timestamp >= timestamp_millis({} + 60000) and timestamp < timestamp_millis({} + 70000)", 4),
        ("offset between 25 and 34", 4),
        ("offset in (3, 75)", 4),
        ("offset <=> 42 and partition <=> 0", 1),
        ("offset >= 70 and partition in (1, 5)", 1),
        ("topic = 'another'", 0),
        ("topic in ('another', 'eight-segments') and offset < 10", 2),
        ("partition = 1 or offset = 5", 16),
        ("timestamp is null", 16),
    ],
)
@PUSHED_FILTERS.needed
def test_only_segments_that_may_hold_wanted_rows_are_fetched(
    stack: TieredStack, spark: SparkSession, segments: str, gets: CountedGets, pushdown: None, where: str, expected: int
) -> None:
    where = where.format(FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS)
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Kathmandu"}):
        read = found(pruned(stack, spark, segments, gets).where(where))
        fetched = logs(gets)
        assert read == found(batch(spark, options(stack, segments)).where(where))
    assert len(fetched) == expected


@pytest.mark.slow
@PUSHED_FILTERS.needed
def test_of_a_thousand_segments_the_two_that_a_filter_matches_are_fetched(
    stack: TieredStack, spark: SparkSession, gets: CountedGets, pushdown: None
) -> None:
    tier_segments(stack, "thousand-segments", [1] * 1000)
    since = f"timestamp >= timestamp_millis({FIRST_TIMESTAMP_MS + 998 * SEGMENT_STEP_MS})"
    frame = pruned(stack, spark, "thousand-segments", gets).where(since)
    assert found(frame) == [(0, 998), (0, 999), (0, 1000)]  # the last is in no tiered segment yet
    check, *data = gets.gets  # these are asked for at once, and come as they like
    by_segment = {_base_offset(get): get for get in data}
    assert [_base_offset(check), *sorted(map(_base_offset, data))] == [998, 998, 999]
    assert check.bytes < by_segment[998].bytes, "one byte of the first, to see that the storage can be read"


def _base_offset(get: Get) -> int:
    assert get.name.endswith(".log"), "indexes of small segments are not worth a request"
    return int(get.name.split("-")[0])


@pytest.mark.slow
def test_a_limit_of_a_topic_of_ten_gigabytes_takes_less_than_32_mebibytes(spark: SparkSession, tmp_path: Path) -> None:
    """All that is fetched counts, manifests and indexes too."""
    assert write_linked_topic(tmp_path / "buckets" / "tier", partitions=10, batches=16_000) > 10_000_000_000
    with S3Proxy(tmp_path / "s3proxy", tmp_path / "buckets") as storage, closing(CountedGets(storage.port)) as gets:
        through = {"remote.storage.uri": "s3://tier", **storage.options(), "remote.storage.s3.endpoint.url": gets.url}
        rows = batch(spark, topic_options(tmp_path, "linked", through)).limit(10).collect()
        assert [row.offset for row in rows] == list(range(10))
    assert sum(get.bytes for get in gets.gets) < 32 << 20


def write_linked_topic(bucket: Path, partitions: int, batches: int) -> int:
    """Write a topic whose partitions have one log, which is one file of many names; return the size of all logs.

    A log does not say of which partition it is, so that every one can be read in full.
    """
    count, logs = 600, []
    batch = record_batch([Record(None, b"x" * 100)] * count)
    starts = [(number * count).to_bytes(8, "big") for number in range(batches)]  # the checksum does not cover it
    for number in range(partitions):
        (segment,) = tiered(TopicPartition("linked", number), [[start + batch[8:61] for start in starts]])
        objects = PLAIN.objects(segment)
        put(bucket, objects)
        logs += [bucket / key for key in objects if key.endswith(".log")]
    logs[0].write_bytes(b"".join(start + batch[8:] for start in starts))
    for log in logs[1:]:
        log.unlink()
        log.hardlink_to(logs[0])
    return sum(log.stat().st_size for log in logs)


@PUSHED_FILTERS.needed
def test_pushdown_that_spark_has_not_on_is_an_error_that_says_how(
    stack: TieredStack, spark: SparkSession, segments: str, gets: CountedGets
) -> None:
    with pytest.raises(PySparkException, match=PUSHDOWN):
        pruned(stack, spark, segments, gets).where("offset = 1").collect()


@pytest.mark.skipif(PUSHED_FILTERS.present, reason="this Spark has the ability")
def test_a_spark_without_pushdown_refuses_the_option(
    stack: TieredStack, spark: SparkSession, segments: str, gets: CountedGets
) -> None:
    with pytest.raises(PySparkException, match=r"remote\.filter\.pushdown=true: this Spark"):
        pruned(stack, spark, segments, gets).where("offset = 1").collect()


@PUSHED_FILTERS.needed
def test_all_uses_of_rows_that_spark_loaded_once_are_planned_by_the_filters_of_the_last(
    stack: TieredStack, spark: SparkSession, segments: str, gets: CountedGets, pushdown: None
) -> None:
    """Why it has to be asked for (Spark: `PythonDataSourceV2.setReadInfo`). When this fails, Spark has mended it."""
    frame = pruned(stack, spark, segments, gets)
    assert frame.where("partition = 0").count() == 81
    assert frame.count() == 81
    assert pruned(stack, spark, segments, gets).count() == 162
    plain = batch(spark, options(stack, segments))
    assert plain.where("partition = 0").count() == 81
    assert plain.count() == 162


def test_columns_that_are_named_are_all_that_spark_gets(stack: TieredStack, spark: SparkSession, segments: str) -> None:
    everything = options(stack, segments)
    expected = sorted(tuple(row) for row in batch(spark, everything).select("offset", "value").collect())
    by_schema = spark.read.format("tiered_stream").options(**everything).schema("offset long, value binary").load()
    assert sorted(tuple(row) for row in by_schema.collect()) == expected
    named = {**everything, "columns": "offset,value"}
    assert sorted(tuple(row) for row in batch(spark, named).collect()) == expected
    streamed = stream(spark, named)
    assert streamed.schema == by_schema.schema
    assert run_in_memory(streamed, "named_columns")
    assert sorted(tuple(row) for row in spark.table("named_columns").collect()) == expected
    for wrong in ("offset int", "offset long, rowid long"):
        with pytest.raises(PySparkException, match="ConfigurationError.*schema"):
            spark.read.format("tiered_stream").options(**everything).schema(wrong).load().collect()


def test_explain_shows_the_filters_as_sparks_own(
    stack: TieredStack, spark: SparkSession, segments: str, gets: CountedGets, pushdown: None
) -> None:
    """Spark evaluates them again; the driver's log says what they left out."""
    pruned(stack, spark, segments, gets).createOrReplaceTempView("explained")
    (row,) = spark.sql("EXPLAIN FORMATTED SELECT * FROM explained WHERE offset = 5").collect()
    assert "Condition : (isnotnull(offset" in row.plan and "PushedFilters" not in row.plan
