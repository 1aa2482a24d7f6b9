"""librdkafka's idempotent producer for one source partition, with transactions and without.

Either way records come into the target between `begin` and `commit`, and `commit` commits the source's next offset
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tiered_stream.model import TopicPartition as Source
from tiered_stream.replay.librdkafka_errors import PATIENCE_SECONDS, again, error_of, target_fault
from tiered_stream.replay.target_positions import Position, PositionGroup
from tiered_stream.replay.topic_settings import TopicWrites

_ANY_PARTITION = -1
_SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    # The default of Kafka's own producer; librdkafka's differs, and with it the partition of a key.
    "partitioner": "murmur2_random",
    # A call into Python for each record that arrives would cost more than the record.
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 1_000_000,
}
_FULL_QUEUE_SECONDS = 0.1
_ABORT_SECONDS = 5.0


class TargetProducer:
    """Without transactions: what a crash comes between is produced again, at least once.

    Every method raises errors of `tiered_stream.errors`.
    """

    def __init__(self, writes: TopicWrites, source: Source, group: PositionGroup) -> None:
        self._source = source
        self._topic = writes.target(source.topic)
        self._partition = _ANY_PARTITION if writes.by_key else source.partition
        self._group = group
        self._failure: KafkaError | None = None
        self._producer = Producer({**_config(writes, source), "on_delivery": self._failed})

    def open(self) -> None:
        """Take over from whoever was at this source partition before, where that is possible."""

    def begin(self) -> None:
        """Nothing of what is produced from now on is committed."""

    def commit(self, position: Position) -> None:
        """All that was produced is in the target, and the position is committed."""
        # It ends: a record that cannot be delivered fails after `delivery.timeout.ms`.
        while self._producer.flush(PATIENCE_SECONDS):
            self._check_delivery()
        self._check_delivery()
        self._group.commit(position)

    def abort(self) -> None:
        """Take back what was produced since `begin`, where that is possible."""
        self._producer.purge()

    def produce(self, rows: pa.RecordBatch) -> None:
        """Hand over records; they are on their way when this returns."""
        produce, topic, partition = self._producer.produce, self._topic, self._partition
        for offset, key, value, timestamp, headers in _records(rows):
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(_FULL_QUEUE_SECONDS)
                    self._check_delivery()
                except KafkaException as exception:
                    doing = f"producing the record at offset {offset} of {self._source} to {topic}"
                    raise target_fault(error_of(exception), doing) from exception
        self._producer.poll(0)
        self._check_delivery()

    def _failed(self, error: KafkaError, message: Message) -> None:
        self._failure = self._failure or error

    def _check_delivery(self) -> None:
        if self._failure is not None:
            raise target_fault(self._failure, f"producing {self._source} to {self._topic}")


class TransactionalProducer(TargetProducer):
    """In transactions (KIP-98), the position one of their offsets (KIP-447).

    The transactional id is the source partition's, so that one task at a time can commit for it.
    """

    def open(self) -> None:
        self._again(lambda: self._producer.init_transactions(PATIENCE_SECONDS))

    def begin(self) -> None:
        self._again(self._producer.begin_transaction)

    def commit(self, position: Position) -> None:
        offsets, group = self._group.offsets(position), self._group.metadata
        self._again(lambda: self._producer.send_offsets_to_transaction(offsets, group, PATIENCE_SECONDS))
        self._again(lambda: self._producer.commit_transaction(PATIENCE_SECONDS))

    def abort(self) -> None:
        try:
            self._producer.abort_transaction(_ABORT_SECONDS)
        except KafkaException:
            pass  # the next one to open it, or its timeout, aborts it

    def _again(self, call: Callable[[], object]) -> None:
        def checked() -> None:
            try:
                call()
            except KafkaException:
                # What became of a record says more than that its transaction failed.
                self._check_delivery()
                raise

        again(checked, f"producing {self._source} to {self._topic}")


def target_producer(writes: TopicWrites, source: Source, group: PositionGroup) -> TargetProducer:
    """The producer that was asked for."""
    return (TransactionalProducer if writes.transactional else TargetProducer)(writes, source, group)


def check_transactions(writes: TopicWrites, source: Source) -> None:
    """Whether the user may have transactions; those that another run of the replay has open are aborted.

    Raises:
        BrokerAuthorizationError: the user may not.
    """
    producer, doing = Producer(_config(writes, source)), f"beginning transactions as {writes.name_of(source)}"
    again(lambda: producer.init_transactions(PATIENCE_SECONDS), doing)


def _config(writes: TopicWrites, source: Source) -> dict[str, Any]:
    transactional_id = {"transactional.id": writes.name_of(source)} if writes.transactional else {}
    return {**writes.producer, **_SETTINGS, **transactional_id}


def _records(rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Offset, key, value, timestamp in milliseconds and headers of each record."""
    timestamps = [micros // 1000 for micros in rows.column("timestamp").cast(pa.int64()).to_pylist()]
    columns = [rows.column(name).to_pylist() for name in ("offset", "key", "value")]
    return zip(*columns, timestamps, map(_pairs, rows.column("headers").to_pylist()), strict=True)


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(each["key"], each["value"]) for each in headers] if headers else None
