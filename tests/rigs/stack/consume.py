"""Rows from a plain Kafka consumer, with which tests compare the rows of readers of tiered storage.

kafka-python's consumer does the reading; nothing of `tiered_stream` takes part.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from kafka import KafkaConsumer, TopicPartition

from tests.rigs.stack import native_crc  # noqa: F401 - it is enough that it is imported
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.processes import LONG
from tests.rigs.stack.rows import Row
from tests.rigs.stack.topics import partitions_of

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


def read_topic(
    broker: KafkaBroker,
    topic: str,
    isolation: str = READ_COMMITTED,
    ranges: Mapping[int, tuple[int, int]] | None = None,
) -> list[Row]:
    """Rows of a topic, ordered by partition and offset.

    Args:
        ranges: by partition, the first offset and the end (exclusive); None: everything there is now.

    Raises:
        StackError: the consumer got no further.
    """
    return read_rounds(broker, topic, isolation, [ranges])[0]


def read_rounds(
    broker: KafkaBroker, topic: str, isolation: str, rounds: Iterable[Mapping[int, tuple[int, int]] | None]
) -> list[list[Row]]:
    """As `read_topic`, for one `ranges` after the other, by one consumer that seeks.

    Raises:
        StackError: as `read_topic`.
    """
    partitions = partitions_of(broker, topic)
    made = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=8 << 20,
        check_crcs=True,
    )
    with closing(made) as consumer:
        return [_read(consumer, _bounds(consumer, partitions, ranges)) for ranges in rounds]


def _read(consumer: KafkaConsumer, bounds: dict[TopicPartition, tuple[int, int]]) -> list[Row]:
    consumer.assign(list(bounds))
    for partition, (start, _) in bounds.items():
        consumer.seek(partition, start)
    return sorted(_poll(consumer, {partition: end for partition, (_, end) in bounds.items()}))


def _bounds(
    consumer: KafkaConsumer, partitions: Iterable[TopicPartition], ranges: Mapping[int, tuple[int, int]] | None
) -> dict[TopicPartition, tuple[int, int]]:
    if ranges is not None:
        return {partition: ranges[partition.partition] for partition in partitions if partition.partition in ranges}
    wanted = list(partitions)
    starts, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    return {partition: (starts[partition], ends[partition]) for partition in wanted}


def _poll(consumer: KafkaConsumer, ends: dict[TopicPartition, int]) -> Iterable[Row]:
    deadline = time.monotonic() + LONG
    while behind := [partition for partition, end in ends.items() if consumer.position(partition) < end]:
        for partition, records in consumer.poll(timeout_ms=200, max_records=50_000).items():
            deadline = time.monotonic() + LONG
            for record in records:
                if record.offset < ends[partition]:
                    yield Row(
                        record.partition,
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )
        if time.monotonic() > deadline:
            raise StackError(f"the consumer got no further for {LONG:.0f} s: {behind}")
