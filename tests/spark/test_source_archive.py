"""Golden archives through Spark, with no broker: every row as a consumer of the lost cluster had returned it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.archives import (
    COMMITTED,
    PLAIN,
    TRANSFORMED,
    UNCOMMITTED,
    Rows,
    archive_options,
    consumed,
    in_folder,
)
from tests.golden import NAMES, golden
from tests.reading import batch, run_available_now, stream
from tests.rigs.stack.rows import Row
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.s3proxy import S3Proxy
from tests.spark.abilities import SEVERAL_BATCHES
from tiered_stream.model import TopicPartition

pytestmark = pytest.mark.stack


def by_partition(frame: DataFrame) -> Rows:
    """The rows of each partition, in Spark's order."""
    read: Rows = {}
    columns = ("partition", "offset", "unix_millis(timestamp)", "timestampType", "key", "value")
    for topic, *row, headers in frame.selectExpr("topic", *columns, "headers").collect():
        assert headers is None or headers  # null where a record has none
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        read.setdefault(TopicPartition(topic, row[0]), []).append(Row(*row, pairs))
    return read


def part_of(rows: Rows, topic: str) -> Rows:
    return {partition: found for partition, found in rows.items() if partition.topic == topic}


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("name", NAMES)
def test_every_partition_reads_back_as_a_consumer_returned_it(spark: SparkSession, name: str, isolation: str) -> None:
    read = by_partition(batch(spark, archive_options(name, {"kafka.isolation.level": isolation})))
    expected = consumed(name, isolation)
    assert read.keys() == expected.keys()
    for partition, found in read.items():
        assert found == expected[partition], partition


@pytest.mark.parametrize("name,topic,tasks", [(PLAIN, "txn", 120), (TRANSFORMED, "big", 6)])
def test_segments_in_many_splits_give_the_same_rows(spark: SparkSession, name: str, topic: str, tasks: int) -> None:
    """Chunks that are transformed are not cut."""
    topic = golden(name).topic_prefix + topic
    frame = batch(spark, archive_options(name, {"subscribe": topic, "remote.split.bytes": "1k"}))
    assert frame._jdf.queryExecution().executedPlan().execute().getNumPartitions() >= tasks
    assert by_partition(frame) == part_of(consumed(name, COMMITTED), topic)


@pytest.mark.slow
def test_the_same_bucket_in_s3_is_read_with_the_plugins_s3_properties(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(golden(TRANSFORMED).bucket, tmp_path / "buckets" / "tier")
    proxy = S3Proxy(tmp_path / "s3proxy", tmp_path / "buckets")
    in_s3 = {
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "rsm.config.storage.s3.endpoint.url": proxy.endpoint,
        "rsm.config.storage.s3.bucket.name": "tier",
        "rsm.config.storage.s3.region": REGION,
        "rsm.config.storage.s3.path.style.access.enabled": "true",
        "rsm.config.storage.aws.access.key.id": proxy.access_key,
        "rsm.config.storage.aws.secret.access.key": proxy.secret_key,
    }
    with proxy:
        read = by_partition(batch(spark, archive_options(TRANSFORMED, storage=in_s3)))
    assert read == consumed(TRANSFORMED, COMMITTED)


@SEVERAL_BATCHES.needed
def test_a_stream_lands_the_archive_and_goes_on_with_what_comes(spark: SparkSession, tmp_path: Path) -> None:
    """Its segments arrive in two halves, the checkpoint and the table stay."""
    bucket, topic = tmp_path / "bucket", "s32-txn"
    shutil.copytree(golden(PLAIN).bucket, bucket)
    (folder,) = bucket.glob(f"plain/{topic}-*/0")
    late = sorted(folder.iterdir())[24:]
    for path in late:
        path.rename(tmp_path / path.name)
    given = archive_options(PLAIN, {"subscribe": topic, "maxOffsetsPerTrigger": "900"}, in_folder(PLAIN, bucket))
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    progress = run_available_now(stream(spark, given), table, checkpoint)
    assert len(progress) >= 2
    for path in late:
        (tmp_path / path.name).rename(path)
    assert run_available_now(stream(spark, given), table, checkpoint)
    landed = by_partition(spark.read.format("delta").load(str(table)))
    assert {partition: sorted(found) for partition, found in landed.items()} == part_of(
        consumed(PLAIN, COMMITTED), topic
    )


@pytest.fixture
def twins(tmp_path: Path) -> tuple[Path, list[str]]:
    """A bucket with two topics named s32-codecs, and their ids."""
    bucket = tmp_path / "bucket"
    (codecs,) = golden(PLAIN).bucket.glob("plain/s32-codecs-*")
    ids = [codecs.name[-22:], "AAAAAAAAAAAAAAAAAAAAAQ"]
    for topic_id in ids:
        target = bucket / "plain" / f"s32-codecs-{topic_id}"
        shutil.copytree(codecs, target)
        for manifest in target.rglob("*.rsm-manifest"):
            manifest.write_text(manifest.read_text().replace(ids[0], topic_id))
    shutil.rmtree(bucket / "plain" / f"s32-codecs-{ids[1]}" / "1")
    return bucket, ids


def test_of_two_topics_with_one_name_the_user_chooses(spark: SparkSession, twins: tuple[Path, list[str]]) -> None:
    bucket, ids = twins
    storage = in_folder(PLAIN, bucket)
    with pytest.raises(PySparkException, match=r"'s32-codecs'.*remote\.topic\.id") as raised:
        batch(spark, archive_options(PLAIN, {"subscribe": "s32-codecs"}, storage)).collect()
    assert all(topic_id in str(raised.value) for topic_id in ids)
    everything = part_of(consumed(PLAIN, COMMITTED), "s32-codecs")
    for topic_id, partitions in zip(ids, (2, 1), strict=True):
        chosen = {"subscribe": "s32-codecs", "remote.topic.id": topic_id}
        read = by_partition(batch(spark, archive_options(PLAIN, chosen, storage)))
        assert read == dict(sorted(everything.items())[:partitions])
