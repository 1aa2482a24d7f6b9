"""The stack by itself: what is produced is tiered, is served over S3, and comes back from a consumer."""

from __future__ import annotations

import time

import boto3
import pytest
from botocore.exceptions import ClientError
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.rigs.stack.batches import CODECS
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.consume import READ_UNCOMMITTED, read_topic
from tests.rigs.stack.produce import RawProducer, produce_segments
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import (
    KEEP_LOCAL,
    create_tiered_topic,
    offsets,
    roll,
    wait_until_tiered,
    wait_until_tiered_to,
)
from tests.rigs.stack.transactions import TransactionalProducer

STEP = 10_000
"""Milliseconds between records; more than `ROLLING`, so that each batch begins a segment."""
ROLLING = {"segment.ms": "5000"}
ODD_RECORDS = [
    Record(),
    Record(b"", b""),
    Record(b"key", b"value", (("name", b"x"), ("name", None), ("", b"")), timestamp_ms=1),
    Record(None, b"value" * 100, timestamp_ms=4_000_000_000_000),
]


def log_segments(stack: TieredStack, topic: str) -> list[str]:
    listed = stack.s3proxy.client().get_paginator("list_objects_v2").paginate(Bucket=stack.bucket, Prefix=f"{topic}-")
    keys = [item["Key"] for page in listed for item in page.get("Contents", [])]
    return sorted(key for key in keys if key.endswith(".log"))


def stamped(count: int) -> list[Record]:
    start = time.time_ns() // 1_000_000
    return [Record(b"%d" % index, b"value", timestamp_ms=start + index * STEP) for index in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_from_the_tier(stack: TieredStack, topic: str, codec: str) -> None:
    create_tiered_topic(stack.broker, topic)
    with RawProducer(stack.broker) as producer:
        assert producer.send(topic, ODD_RECORDS, codec=codec) == 0
    roll(stack.broker, topic)
    tiered = wait_until_tiered(stack.broker, topic)
    assert tiered == {0: len(ODD_RECORDS)} == offsets(stack.broker, topic, OffsetSpec.EARLIEST_LOCAL)
    rows = read_topic(stack.broker, topic, ranges={0: (0, tiered[0])})
    assert [row.record() for row in rows] == ODD_RECORDS
    (key,) = log_segments(stack, topic)
    body = stack.s3proxy.client().get_object(Bucket=stack.bucket, Key=key)["Body"].read()
    assert body == (stack.tier_dir / key).read_bytes()
    assert body[16] == 2 and body[22] & 0b111 == CODECS[codec][0]  # magic; the codec in the attributes' low byte


def test_each_batch_can_have_a_segment_of_its_own(stack: TieredStack, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, config=ROLLING)
    produce_segments(stack.broker, topic, [[record] for record in stamped(12)])
    assert wait_until_tiered(stack.broker, topic) == {0: 11}
    assert len(log_segments(stack, topic)) == 11


def test_local_copies_can_stay(stack: TieredStack, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, config=ROLLING | KEEP_LOCAL)
    produce_segments(stack.broker, topic, [[record] for record in stamped(4)])
    assert wait_until_tiered(stack.broker, topic, deleted_locally=False) == {0: 3}
    assert offsets(stack.broker, topic, OffsetSpec.EARLIEST_LOCAL) == {0: 0}


def test_bulk_fills_all_partitions(stack: TieredStack, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2)
    produce_bulk(stack.broker, topic, records=30_000, properties={"compression.type": "lz4"})
    ends = offsets(stack.broker, topic, OffsetSpec.LATEST)
    assert sum(ends.values()) == 30_000 and all(ends.values())


def test_transactions_interleave_and_span_segments(stack: TieredStack, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, config=ROLLING)
    records = stamped(7)
    with (
        TransactionalProducer(stack.broker, f"{topic}-a") as aborting,
        TransactionalProducer(stack.broker, f"{topic}-b") as committing,
        RawProducer(stack.broker) as plain,
    ):
        assert aborting.send(topic, records[:1]) == 0
        assert committing.send(topic, records[1:2]) == 1
        assert plain.send(topic, records[2:3]) == 2
        assert aborting.send(topic, records[3:4], codec="zstd") == 3
        aborting.abort()
        assert committing.send(topic, records[4:5]) == 5
        committing.commit()
        assert aborting.send(topic, records[5:6]) == 7  # stays open
        plain.send(topic, records[6:7])
        wait_until_tiered_to(stack.broker, topic, {0: 7})
        committed = read_topic(stack.broker, topic, ranges={0: (0, 7)})
        everything = read_topic(stack.broker, topic, READ_UNCOMMITTED)
        aborting.commit()
    assert [row.offset for row in committed] == [1, 2, 5]
    assert [row.record() for row in everything] == records


def test_the_s3_endpoint_refuses_a_wrong_secret(stack: TieredStack) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=stack.s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id=stack.access_key,
        aws_secret_access_key="wrong",
    )
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client.list_objects_v2(Bucket=stack.bucket)
