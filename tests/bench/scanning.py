"""How fast one Python process without Spark reads a tiered topic: our `scan`, kafka-python and confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import confluent_kafka
from kafka import KafkaConsumer, TopicPartition

from tests.bench.figures import Row
from tests.bench.rig import Rig
from tests.bench.shapes import Shape
from tests.bench.turns import Claim, Contender, rows_of
from tiered_stream import scan

CLIENT_RECORDS = 500_000
"""Of the topic's records the plain consumers read so many: all of them would take minutes."""
_FETCH_BYTES = 16 << 20
OURS, ORDERED, CONFLUENT, KAFKA_PYTHON = "tiered_stream.scan", "the same, in order", "confluent-kafka", "kafka-python"
CLAIMS = (
    Claim("scan A", OURS, CONFLUENT),
    Claim("scan A", OURS, KAFKA_PYTHON),
    Claim("scan A", OURS, ORDERED),
)


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """Per record, from the first request on."""
    shape = rig.topic("A")
    some = min(CLIENT_RECORDS, shape.records)
    contenders = {
        OURS: Contender(partial(_scan, rig, shape, ordered=False), shape.rows),
        ORDERED: Contender(partial(_scan, rig, shape, ordered=True), shape.rows),
        CONFLUENT: Contender(partial(_confluent, rig, shape, some), some),
        KAFKA_PYTHON: Contender(partial(_kafka_python, rig, shape, some), some),
    }
    yield from rows_of(CLAIMS, contenders, runs)


def _scan(rig: Rig, shape: Shape, *, ordered: bool) -> float:
    begin = time.perf_counter()
    found = sum(batch.num_rows for batch in scan(rig.options(shape), ordered=ordered))
    assert found == shape.rows, f"{found} records, not {shape.rows}"
    return time.perf_counter() - begin


def _kafka_python(rig: Rig, shape: Shape, records: int) -> float:
    begin = time.perf_counter()
    consumer = KafkaConsumer(
        bootstrap_servers=rig.stack.bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=10_000,
    )
    consumer.assign([TopicPartition(shape.topic, number) for number in range(shape.partitions)])
    found = 0
    while found < records:
        found += sum(map(len, consumer.poll(10_000).values()))
    consumer.close()
    return time.perf_counter() - begin


def _confluent(rig: Rig, shape: Shape, records: int) -> float:
    begin = time.perf_counter()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": rig.stack.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": _FETCH_BYTES,
            "fetch.max.bytes": 4 * _FETCH_BYTES,
        }
    )
    consumer.assign(
        [
            confluent_kafka.TopicPartition(shape.topic, number, confluent_kafka.OFFSET_BEGINNING)
            for number in range(shape.partitions)
        ]
    )
    found = 0
    while found < records:
        for message in consumer.consume(10_000, 10):
            assert message.error() is None, message.error()
            found += len(message.value()) > 0
    consumer.close()
    return time.perf_counter() - begin
