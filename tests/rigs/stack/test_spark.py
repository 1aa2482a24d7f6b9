"""Spark with its jars: Delta tables, and Spark's own Kafka source as the peer."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic


def test_sparks_own_source_lands_a_topic_in_a_delta_table(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    create_tiered_topic(stack.broker, topic)
    produce_batch(stack.broker, topic, [Record(b"a", b"1"), Record(None, b"2", (("h", b"x"),))])
    options = {"kafka.bootstrap.servers": stack.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    spark.read.format("kafka").options(**options).load().write.format("delta").save(str(tmp_path / "table"))
    rows = spark.read.format("delta").load(str(tmp_path / "table")).orderBy("offset").collect()
    assert [(row.key, bytes(row.value), row.offset) for row in rows] == [(b"a", b"1", 0), (None, b"2", 1)]
