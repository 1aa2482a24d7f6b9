"""`verify` against a broker that tiers: many buckets, a tail that is not tiered, a log that loses its beginning."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import TopicPartition as KafkaTopicPartition
from pyspark.sql import SparkSession

from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered
from tiered_stream import land, verify
from tiered_stream.model import OffsetRange
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.records.row_hash import BUCKET
from tiered_stream.spark.report_addresses import addresses_option
from tiered_stream.verification.verify_report import Kind, PartitionReport, VerifyReport

pytestmark = pytest.mark.slow

RECORDS = 200_000
TOPIC = "verified"


@pytest.fixture(scope="module")
def table(stack: TieredStack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with all of the topic; what a test does to it stays."""
    create_tiered_topic(stack.broker, TOPIC)
    produce_bulk(stack.broker, TOPIC, RECORDS, 20)
    wait_until_tiered(stack.broker, TOPIC)
    folder = tmp_path_factory.mktemp("live")
    options = {**stack.options(), "subscribe": TOPIC, "startingOffsets": "earliest"}
    land(spark, options=options, table=str(folder / "table"), checkpoint=str(folder / "checkpoint")).awaitTermination()
    return folder / "table"


def verified(stack: TieredStack, spark: SparkSession, table: Path, **given: str) -> VerifyReport:
    return verify(spark, options={**stack.options(), "subscribe": TOPIC, **given}, table=str(table))


def only(report: VerifyReport) -> PartitionReport:
    (partition,) = report.partitions
    return partition


def kind_and_offset(report: PartitionReport) -> tuple[Kind, int]:
    assert report.first is not None
    return report.first.kind, report.first.offset


def test_of_many_buckets_only_the_one_that_differs_is_read_again(
    stack: TieredStack, spark: SparkSession, table: Path
) -> None:
    found = only(verified(stack, spark, table))
    assert (found.equal, found.topic_records, found.log) == (True, RECORDS, OffsetRange(0, RECORDS))

    spark.sql(f"UPDATE delta.`{table}` SET value = reverse(value) WHERE offset = 150000")
    with MetricsReceiver() as receiver:
        found = only(
            verified(stack, spark, table, **{"remote.metrics.secret.addresses": addresses_option(receiver.report_to)})
        )
        read = receiver.total().records
    assert kind_and_offset(found) == (Kind.DIFFERENT, 150_000)
    assert (found.differing_buckets, found.differing) == (1, OffsetRange(2 * BUCKET, 3 * BUCKET))
    assert read <= RECORDS + BUCKET + 1

    spark.sql(f"DELETE FROM delta.`{table}` WHERE offset IN (70000, 199999)")
    found = only(verified(stack, spark, table))
    assert kind_and_offset(found) == (Kind.MISSING, 70_000)
    assert (found.differing_buckets, found.differing) == (2, OffsetRange(BUCKET, 3 * BUCKET))
    assert found.offsets == OffsetRange(0, RECORDS - 1)
    found = only(verified(stack, spark, table, endingOffsets="latest"))
    assert (found.differing_buckets, found.differing) == (3, OffsetRange(BUCKET, 4 * BUCKET))


def test_what_the_log_no_longer_has_is_not_compared_and_what_it_does_not_have_yet_is_extra(
    stack: TieredStack, spark: SparkSession, table: Path
) -> None:
    spark.sql(f"DELETE FROM delta.`{table}` WHERE offset > 60000")
    with stack.broker.admin() as admin:
        admin.delete_records({KafkaTopicPartition(TOPIC, 0): 1000})
    found = only(verified(stack, spark, table))
    assert (found.equal, found.offsets, found.table_outside) == (True, OffsetRange(1000, 60_001), 1000)
    assert list(found.not_compared()) == ["offsets 60001 to 199999 of the topic", "1,000 rows of the table"]

    spark.sql(f"UPDATE delta.`{table}` SET offset = {RECORDS + 5} WHERE offset = 60000")
    found = only(verified(stack, spark, table))
    assert kind_and_offset(found) == (Kind.MISSING, 60_000)
    spark.sql(f"INSERT INTO delta.`{table}` SELECT * FROM delta.`{table}` VERSION AS OF 1 WHERE offset >= 60000")
    found = only(verified(stack, spark, table))
    assert kind_and_offset(found) == (Kind.EXTRA, RECORDS + 5)
    assert found.topic_records == RECORDS - 1000
