"""Topics to replay: timestamps that go back and forth, transactions, gaps; most of each is tiered, the rest is not."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from random import Random

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from tests.reading import BY_STEP
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.consume import READ_COMMITTED, read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import TIERED, alter_topic, create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tiered_stream.model import TopicPartition

CREATE_TIME, APPEND_TIME, COMPACTED = "replayed-create-time", "replayed-append-time", "replayed-compacted"
TOPICS = (CREATE_TIME, APPEND_TIME, COMPACTED)
BACK_AND_FORTH, TRANSACTIONS, EMPTY, DELETED_FROM = range(4)
"""The partitions of `CREATE_TIME`."""
FIRST_KEPT = 45
"""Of `DELETED_FROM`: inside a segment."""

_COMPACT = {
    "remote.storage.enable": "false",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    **BY_STEP,
}
_COMPACTED_RECORDS = 120


class ReplayedTopics:
    """The topics, filled, and all their rows as a consumer has them."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.rows = {topic: read_topic(broker, topic) for topic in TOPICS}

    def times(self) -> list[int]:
        """Every timestamp there is, ascending."""
        return sorted({row.timestamp_ms for rows in self.rows.values() for row in rows})

    def offsets_for_time(self, time_ms: int) -> dict[TopicPartition, int | None]:
        """What Kafka's `offsetsForTimes` says of each partition."""
        with self._consumer() as consumer:
            found = consumer.offsets_for_times(dict.fromkeys(self._partitions(consumer), time_ms))
        return {TopicPartition(*each): at.offset if at else None for each, at in found.items()}

    def ends(self) -> dict[TopicPartition, int]:
        """The last stable offsets."""
        with self._consumer() as consumer:
            return {TopicPartition(*at): end for at, end in consumer.end_offsets(self._partitions(consumer)).items()}

    def starts(self) -> dict[TopicPartition, int]:
        """The log start offsets."""
        with self._consumer() as consumer:
            found = consumer.beginning_offsets(self._partitions(consumer))
        return {TopicPartition(*at): start for at, start in found.items()}

    def _consumer(self) -> closing[KafkaConsumer]:
        servers = self.broker.bootstrap_servers
        return closing(
            KafkaConsumer(bootstrap_servers=servers, isolation_level=READ_COMMITTED, enable_auto_commit=False)
        )

    @staticmethod
    def _partitions(consumer: KafkaConsumer) -> list[KafkaTopicPartition]:
        return [
            KafkaTopicPartition(topic, at) for topic in TOPICS for at in sorted(consumer.partitions_for_topic(topic))
        ]


def fill_topics(stack: TieredStack, seed: int) -> ReplayedTopics:
    """Make and fill them, once in a stack."""
    broker, chance = stack.broker, Random(seed)
    create_tiered_topic(broker, CREATE_TIME, partitions=4, config=BY_STEP)
    create_tiered_topic(broker, APPEND_TIME, config={**BY_STEP, "message.timestamp.type": "LogAppendTime"})
    create_tiered_topic(broker, COMPACTED, config=_COMPACT)
    _compact(broker, chance)
    clock = _Clock(chance)
    with RawProducer(broker) as producer:
        for _ in range(60):
            producer.send(CREATE_TIME, clock.records(), BACK_AND_FORTH, chance.choice(["none", "zstd", "gzip"]))
            producer.send(CREATE_TIME, clock.records(), DELETED_FROM)
        for _ in range(20):
            producer.send(APPEND_TIME, clock.records())
    _transact(broker, clock)
    for topic in TOPICS:
        roll(broker, topic)
    with TransactionalProducer(broker, "replayed-open") as open_forever:
        open_forever.send(CREATE_TIME, clock.records(), TRANSACTIONS)
    with broker.admin() as admin:
        admin.delete_records({KafkaTopicPartition(CREATE_TIME, DELETED_FROM): FIRST_KEPT})
    for topic in TOPICS:
        wait_until_tiered(broker, topic)
    with RawProducer(broker) as producer:
        for partition in (BACK_AND_FORTH, DELETED_FROM):
            producer.send(CREATE_TIME, clock.records(), partition)
    return ReplayedTopics(broker)


@dataclass
class _Clock:
    """Timestamps of a producer whose clock is set back and forth; of the future, so that they end segments."""

    chance: Random
    now_ms: int = (time.time_ns() // 1_000_000) + 86_400_000
    number: int = 0

    def records(self) -> list[Record]:
        self.now_ms += self.chance.choice([0, 1, 100, 2500])
        back = self.chance.choice([0, 0, 0, 7, 900, 20_000])
        found = []
        for _ in range(self.chance.randint(1, 5)):
            self.number += 1
            at = self.now_ms - back + self.chance.randint(-3, 3)
            found.append(Record(b"key %d" % self.number, b"value " * (self.number % 30), (("n", b"1"),), at))
        return found


def _transact(broker: KafkaBroker, clock: _Clock) -> None:
    with TransactionalProducer(broker, "replayed-a") as one, TransactionalProducer(broker, "replayed-b") as other:
        for number in range(15):
            one.send(CREATE_TIME, clock.records(), TRANSACTIONS)
            other.send(CREATE_TIME, clock.records(), TRANSACTIONS)
            one.abort() if number % 3 == 1 else one.commit()
            if number % 2:
                other.send(CREATE_TIME, clock.records(), TRANSACTIONS)
                other.abort() if number % 4 == 1 else other.commit()
        other.send(CREATE_TIME, clock.records(), TRANSACTIONS)
        other.commit()


def _compact(broker: KafkaBroker, chance: Random) -> None:
    """Records of few keys, of which the cleaner leaves the last ones; then the topic is one that tiers."""
    clock = _Clock(chance)
    with RawProducer(broker) as producer:
        for number in range(_COMPACTED_RECORDS):
            clock.now_ms += 500
            record = Record(b"%d" % chance.randint(0, 30), b"%d" % number, (), clock.now_ms - chance.randint(0, 5000))
            producer.send(COMPACTED, [record])
    wait_until(lambda: len(read_topic(broker, COMPACTED)) < _COMPACTED_RECORDS - 20, f"{COMPACTED} to be compacted")
    alter_topic(broker, COMPACTED, {"cleanup.policy": "delete"})
    alter_topic(broker, COMPACTED, {name: TIERED[name] for name in ("remote.storage.enable", "local.retention.bytes")})
