"""Random topics of each kind: what producers, the cleaner, transactions and DeleteRecords leave in a log."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafka import TopicPartition
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.reading import BY_STEP, FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS
from tests.rigs.stack.batches import CODECS
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Headers, Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import (
    COMPACTED,
    TIERED,
    add_partitions,
    alter_topic,
    create_tiered_topic,
    offsets,
    roll,
    wait_until_tiered,
    wait_until_tiered_to,
)
from tests.rigs.stack.transactions import TransactionalProducer

DAY_MS = 24 * 3600 * 1000
LONG_TRANSACTIONS = {"transaction.max.timeout.ms": str(DAY_MS)}
"""For the stack's `properties`."""


@dataclass(frozen=True)
class Log:
    """A partition's log start offset and its high watermark."""

    start: int
    end: int


@dataclass(frozen=True)
class Topic:
    name: str
    logs: tuple[Log, ...]
    newest_timestamp_ms: int


class Topics:
    """Makes topics on a stack; each batch of records comes from `draw`."""

    def __init__(self, stack: TieredStack, draw: random.Random) -> None:
        self._stack = stack
        self._broker: KafkaBroker = stack.broker
        self._draw = draw
        self._step = 0

    def make(self) -> list[Topic]:
        """One topic of each kind; the open transaction of one of them stays open."""
        kinds: dict[str, Callable[[str], None]] = {
            "plain": self._plain,
            "compacted": self._compacted,
            "transactional": self._transactional,
            "open-transaction": self._open_transaction,
            "deleted": self._deleted,
            "append-time": self._append_time,
            "empty": lambda name: create_tiered_topic(self._broker, name, 2),
        }
        for name, fill in kinds.items():
            fill(name)
        return [self.look(name) for name in kinds]

    def make_growing(self, name: str) -> Topic:
        """A topic for `grow`."""
        create_tiered_topic(self._broker, name, self._draw.randint(1, 3), config=BY_STEP)
        self.grow(name)
        return self.look(name)

    def grow(self, name: str, more_partitions: int = 0) -> None:
        """More records in each partition, committed, aborted and plain ones, after `more_partitions` were added."""
        count = len(self._logs(name))
        if more_partitions:
            add_partitions(self._broker, name, count + more_partitions)
        with RawProducer(self._broker) as plain, TransactionalProducer(self._broker, name) as transaction:
            for partition in range(count + more_partitions):
                self._segments(plain, name, partition, self._draw.randint(0, 3))
                if self._draw.random() < 0.5:
                    transaction.send(name, self._records(), partition)
                    (transaction.commit if self._draw.random() < 0.6 else transaction.abort)()

    def look(self, name: str) -> Topic:
        """What there is of it now."""
        return Topic(name, tuple(self._logs(name)), FIRST_TIMESTAMP_MS + self._step * SEGMENT_STEP_MS)

    def _logs(self, name: str) -> list[Log]:
        starts = offsets(self._broker, name, OffsetSpec.EARLIEST)
        ends = offsets(self._broker, name, OffsetSpec.LATEST)
        return [Log(starts[partition], ends[partition]) for partition in sorted(ends)]

    def _plain(self, name: str) -> None:
        create_tiered_topic(self._broker, name, 4, config=BY_STEP)
        with RawProducer(self._broker) as producer:
            for partition in range(3):  # the last one stays empty
                self._segments(producer, name, partition, self._draw.randint(2, 5))
        wait_until_tiered(self._broker, name)

    def _append_time(self, name: str) -> None:
        create_tiered_topic(self._broker, name, 2, config={"message.timestamp.type": "LogAppendTime"})
        with RawProducer(self._broker) as producer:
            for partition in (0, 1):
                for _ in range(self._draw.randint(2, 5)):
                    producer.send(name, self._records(), partition, self._codec())
        roll(self._broker, name)
        wait_until_tiered(self._broker, name)

    def _transactional(self, name: str) -> None:
        create_tiered_topic(self._broker, name, 2, config=BY_STEP)
        with (
            RawProducer(self._broker) as plain,
            TransactionalProducer(self._broker, f"{name}-a") as one,
            TransactionalProducer(self._broker, f"{name}-b") as other,
        ):
            for _ in range(self._draw.randint(3, 6)):
                for partition in (0, 1):
                    one.send(name, self._records(), partition, self._codec())
                    self._segments(plain, name, partition, 1)
                    other.send(name, self._records(), partition, self._codec())
                for transaction in (one, other):
                    (transaction.commit if self._draw.random() < 0.6 else transaction.abort)()
        roll(self._broker, name)
        wait_until_tiered(self._broker, name)

    def _open_transaction(self, name: str) -> None:
        """Ends below the high watermark where only what is committed is read."""
        create_tiered_topic(self._broker, name, 2, config=BY_STEP)
        with RawProducer(self._broker) as plain, TransactionalProducer(self._broker, name, DAY_MS) as transaction:
            for partition in (0, 1):
                self._segments(plain, name, partition, 2)
            transaction.send(name, self._records(), 0)
            for partition in (0, 1):
                self._segments(plain, name, partition, 1)
        wait_until_tiered_to(self._broker, name, {0: 1, 1: 1})

    def _deleted(self, name: str) -> None:
        """DeleteRecords ends inside a segment."""
        create_tiered_topic(self._broker, name, 3, config=BY_STEP)
        with RawProducer(self._broker) as producer:
            for partition in range(3):
                self._segments(producer, name, partition, 4)
        wait_until_tiered(self._broker, name)
        ends = offsets(self._broker, name, OffsetSpec.LATEST)
        with self._broker.admin() as admin:
            admin.delete_records({TopicPartition(name, p): self._draw.randint(1, ends[p] - 1) for p in (0, 1)})

    def _compacted(self, name: str) -> None:
        """Tiered after the cleaner has gone over it: Kafka does not tier a topic that it compacts."""
        create_tiered_topic(self._broker, name, 2, config=COMPACTED)
        with RawProducer(self._broker) as plain, TransactionalProducer(self._broker, name) as transaction:
            for partition in (0, 1):
                for number in range(self._draw.randint(2, 4)):
                    transaction.send(name, [Record(b"void", b"v")] * 3, partition)
                    transaction.abort()
                    plain.send(name, [Record(b"%d" % key, b"%d" % number) for key in range(20)], partition)
        dirty = {partition: self._bytes(name, partition) for partition in (0, 1)}
        roll(self._broker, name)
        wait_until(lambda: self._is_cleaned(name, dirty), "the cleaner", timeout=600)
        alter_topic(self._broker, name, {**TIERED, "cleanup.policy": "delete"})
        wait_until_tiered(self._broker, name)

    def _is_cleaned(self, name: str, dirty: Mapping[int, int]) -> bool:
        try:
            return all(self._bytes(name, partition) < size for partition, size in dirty.items())
        except FileNotFoundError:  # the cleaner replaces a file between its listing and the question for its size
            return False

    def _bytes(self, name: str, partition: int) -> int:
        folder = self._broker.logs_dir / f"{name}-{partition}"
        return sum(file.stat().st_size for file in folder.glob("*.log"))

    def _segments(self, producer: RawProducer, name: str, partition: int, count: int) -> None:
        for _ in range(count):
            self._step += 1
            producer.send(name, self._records(), partition, self._codec())

    def _codec(self) -> str:
        return self._draw.choice(sorted(CODECS))

    def _records(self) -> list[Record]:
        """A batch; its timestamps begin a step after those of the batch before, so that a segment may roll."""
        first = FIRST_TIMESTAMP_MS + self._step * SEGMENT_STEP_MS
        return [
            Record(
                self._bytes_or_none(),
                self._bytes_or_none(),
                self._headers(),
                first + self._draw.randint(0, SEGMENT_STEP_MS // 2),
            )
            for _ in range(self._draw.randint(1, 60))
        ]

    def _bytes_or_none(self) -> bytes | None:
        return None if self._draw.random() < 0.1 else self._draw.randbytes(self._draw.randint(0, 30))

    def _headers(self) -> Headers:
        names: Sequence[str] = ("a", "b", "a", "ü")
        return tuple((name, self._bytes_or_none()) for name in names[: self._draw.choice((0, 0, 0, 1, 3, 4))])
