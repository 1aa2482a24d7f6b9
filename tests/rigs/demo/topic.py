"""The demo's topic: records of every shape, transactions among them, most of it only in S3."""

from __future__ import annotations

import time

from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import active_segment, alter_topic, partitions_of, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer

TOPIC = "orders"
PARTITIONS = 4
RECORD_BYTES = 100
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCERS = 3
TRANSACTIONS = 20
HISTORY_SEGMENT_BYTES = 32 << 20


def fill(stack: TieredStack, records: int) -> None:
    """Bulk records, records of every shape in every codec, and interleaved transactions, a part of them aborted."""
    odd = [
        Record(),
        Record(b"", b""),
        Record(b"key", None),
        Record(None, b"value", (("trace", b"1"), ("trace", None), ("", b""))),
        *(Record(b"key %d" % each, b"value %d" % each * (each % 20), (("n", b"%d" % each),)) for each in range(500)),
    ]
    with RawProducer(stack.broker) as producer:
        for partition in range(PARTITIONS):
            for codec in CODECS:
                producer.send(TOPIC, odd, partition, codec)
    produce_bulk(stack.broker, TOPIC, records // 2, RECORD_BYTES)
    transact(stack)
    produce_bulk(stack.broker, TOPIC, records - records // 2, RECORD_BYTES, {"compression.type": "zstd"})


def fill_history(stack: TieredStack, records: int) -> None:
    """Bulk records alone, in segments of a size as topics of real clusters have, all of them only in S3."""
    alter_topic(stack.broker, TOPIC, {"segment.bytes": str(HISTORY_SEGMENT_BYTES)})
    produce_bulk(stack.broker, TOPIC, records, RECORD_BYTES)
    roll(stack.broker, TOPIC)
    wait_until_tiered(stack.broker, TOPIC)


def transact(stack: TieredStack) -> None:
    """Every producer keeps its transactions open over those of the others; every third is aborted."""
    producers = [TransactionalProducer(stack.broker, f"demo-{time.time_ns()}-{each}") for each in range(PRODUCERS)]
    for number in range(TRANSACTIONS):
        for index, producer in enumerate(producers):
            values = [Record(b"transaction %d" % number, b"of producer %d" % index)] * 50
            producer.send(TOPIC, values, (number + index) % PARTITIONS)
            if (number + index) % 2:
                producer.abort() if number % 3 == 0 else producer.commit()
    for producer in producers:
        producer.send(TOPIC, [Record(b"last", b"one")])
        producer.commit()
        producer.close()


def count_segments(stack: TieredStack) -> int:
    """Segments of the topic in the bucket."""
    pages = stack.s3proxy.client().get_paginator("list_objects_v2").paginate(Bucket=stack.bucket)
    keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
    return sum(key.startswith(f"{TOPIC}-") and key.endswith(".log") for key in keys)


def bytes_not_tiered(stack: TieredStack) -> int:
    """Of the active segments, which nobody but the broker has."""
    active = {number: active_segment(stack.broker, TOPIC, number) for _, number in partitions_of(stack.broker, TOPIC)}
    files = [stack.logs_dir / f"{TOPIC}-{number}" / f"{base:020d}.log" for number, base in active.items()]
    return sum(file.stat().st_size for file in files)
