"""One process that reads the beginning of a topic by the clients that Python has: kafka-python and confluent-kafka."""

from __future__ import annotations

import confluent_kafka
from kafka import KafkaConsumer, TopicPartition

from tests.rigs.bench.shapes import Shape

SOME_RECORDS = 500_000
"""Of a topic's records they read so many: all of them would take minutes."""
KAFKA_PYTHON, CONFLUENT = "kafka-python", "confluent-kafka"
_FETCH_BYTES = 16 << 20
_AT_ONCE = 10_000


def kafka_python_reads(bootstrap_servers: str, shape: Shape, records: int) -> None:
    """At least so many records."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=_AT_ONCE,
    )
    consumer.assign([TopicPartition(shape.topic, number) for number in range(shape.partitions)])
    found = 0
    while found < records:
        found += sum(map(len, consumer.poll(10_000).values()))
    consumer.close()


def confluent_reads(bootstrap_servers: str, shape: Shape, records: int) -> None:
    """At least so many records."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
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
        for message in consumer.consume(_AT_ONCE, 10):
            assert message.error() is None, message.error()
            found += bool(message.value())
    consumer.close()
