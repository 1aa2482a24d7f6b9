"""`tiered-stream lag` of checkpoints as Spark writes them: over a golden archive, and beside a broker that tiers."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import TopicPartition as KafkaTopicPartition
from pyspark.sql import SparkSession

from tests.archives import PLAIN, archive_options, consumed
from tests.cli.running import report, run
from tests.inspection.test_query_checkpoint import write_checkpoint
from tests.reading import FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS, options, run_available_now, stream, tier_segments
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import add_partitions
from tests.rigs.stack.transactions import TransactionalProducer
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.model import TopicPartition

TOPIC = "s32-codecs"


def test_a_query_over_an_archive_is_behind_by_what_it_has_not_read(tmp_path: Path) -> None:
    rows = consumed(PLAIN, "read_committed")[TopicPartition(TOPIC, 0)]
    committed = rows[len(rows) // 2].offset
    checkpoint = write_checkpoint(tmp_path / "c", 4, f'{{"{TOPIC}":{{"0":{committed}}}}}')
    found = report("lag", {**archive_options(PLAIN), "ingest.checkpointLocation": str(checkpoint)})
    first, second = found["partitions"]
    assert (found["batch_id"], first["committed_offset"], second["committed_offset"]) == (4, committed, None)
    assert first["lag_offsets"] == first["tiered_offsets"] == first["end_offset"] - committed > 0
    assert first["next_timestamp_ms"] == rows[len(rows) // 2].timestamp_ms
    assert second["lag_offsets"] == second["end_offset"] - second["log_start_offset"]
    assert found["total"]["lag_offsets"] == first["lag_offsets"] + second["lag_offsets"]


def test_a_query_that_has_read_further_than_the_log_goes_is_not_said_to_be_behind_by_nothing(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 0, f'{{"{TOPIC}":{{"0":999999}}}}')
    ended = run("lag", archive_options(PLAIN), "--checkpoint", str(checkpoint))
    assert ended.exit_code == 0
    assert f"{TOPIC}-0: the query has read up to offset 999,999, but the log ends at" in ended.stdout


def test_a_checkpoint_in_s3_is_reached_by_what_spark_submit_is_given(lake: VersityGateway, tmp_path: Path) -> None:
    lake.client().create_bucket(Bucket="lake")
    write_checkpoint(lake.base_dir / "lake" / "c", 4, f'{{"{TOPIC}":{{"0":1}}}}')
    s3a = {"endpoint": lake.endpoint, "access.key": lake.access_key, "secret.key": lake.secret_key}
    s3a |= {"path.style.access": "true", "endpoint.region": REGION}
    lines = [f"spark.hadoop.fs.s3a.{name} {value}\n" for name, value in s3a.items()]
    (tmp_path / "spark.conf").write_text("".join(lines))
    given = archive_options(PLAIN), "--checkpoint", "s3a://lake/c"
    assert report("lag", *given, "--properties-file", str(tmp_path / "spark.conf"))["batch_id"] == 4
    missing = run("lag", *given[:-1], "s3a://lake/other", "--properties-file", str(tmp_path / "spark.conf"))
    assert missing.exit_code == 2 and "no micro-batch is committed" in missing.output
    (tmp_path / "wrong.conf").write_text("".join(lines).replace(lake.secret_key, "wrong"))
    ended = run("lag", *given, "--properties-file", str(tmp_path / "wrong.conf"))
    assert ended.exit_code == 1 and "--properties-file" in ended.output


@pytest.mark.stack
def test_a_querys_own_checkpoint_says_how_far_behind_it_is(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    total = tier_segments(stack, topic, [40, 30, 50])
    checkpoint = tmp_path / "checkpoint"
    given = options(stack, topic)
    run_available_now(stream(spark, given), tmp_path / "table", checkpoint)
    (partition,) = report("lag", given, "--checkpoint", str(checkpoint))["partitions"]
    assert (partition["committed_offset"], partition["lag_offsets"], partition["lag_seconds"]) == (total, 0, 0.0)

    with RawProducer(stack.broker) as producer, TransactionalProducer(stack.broker, topic) as open_one:
        producer.send(topic, [Record(value=b"v", timestamp_ms=FIRST_TIMESTAMP_MS)] * 5)
        add_partitions(stack.broker, topic, 2)
        producer.send(topic, [Record(value=b"v")] * 3, 1)
        open_one.send(topic, [Record(value=b"undecided")])
        found = report("lag", given, "--checkpoint", f"file://{checkpoint}")
        ended = run("lag", given, "--checkpoint", str(checkpoint))
        open_one.abort()
    first, second = found["partitions"]
    assert (first["lag_offsets"], first["tiered_offsets"], first["next_timestamp_ms"]) == (5, 0, FIRST_TIMESTAMP_MS)
    assert first["high_watermark"] > first["end_offset"] == total + 5
    assert (second["committed_offset"], second["lag_offsets"]) == (None, 3)
    assert "transaction" in ended.stdout


@pytest.mark.stack
def test_what_is_tiered_of_a_lag_and_what_is_lost_is_said(stack: TieredStack, topic: str, tmp_path: Path) -> None:
    total = tier_segments(stack, topic, [40, 30, 50])
    given = options(stack, topic)
    checkpoint = write_checkpoint(tmp_path / "c", 0, f'{{"{topic}":{{"0":45,"7":3}}}}')
    found = report("lag", given, "--checkpoint", str(checkpoint))
    (partition,) = found["partitions"]
    assert (partition["lag_offsets"], partition["tiered_offsets"]) == (total - 45, 120 - 45)
    assert partition["next_timestamp_ms"] == FIRST_TIMESTAMP_MS + SEGMENT_STEP_MS
    assert found["gone"] == [{"topic": topic, "partition": 7}]
    two_topics = write_checkpoint(tmp_path / "two", 0, f'{{"{topic}":{{"0":45,"7":3}},"not-chosen":{{"0":9}}}}')
    assert report("lag", given, "--checkpoint", str(two_topics), "--subscribe", topic)["gone"] == found["gone"]

    with stack.broker.admin() as admin:
        admin.delete_records({KafkaTopicPartition(topic, 0): 50})
    (partition,) = report("lag", given, "--checkpoint", str(checkpoint))["partitions"]
    assert (partition["lost_offsets"], partition["lag_offsets"]) == (5, total - 50)
