"""Small topics with all that may be in one: transactions that span segments, aborted ones, every codec, and a tail."""

from __future__ import annotations

import time
from contextlib import ExitStack
from random import Random

from tests.reading import BY_STEP
from tests.rigs.stack.batches import CODECS
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.topics import KEEP_LOCAL, create_tiered_topic, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer

REPLICAS = (1, 2)
"""The first leads, as long as nothing happens to it."""
PARTITIONS, SEGMENTS = 2, 14
_STEP_MS = 2000
_TOMORROW_MS = 86_400_000


def fill(broker: KafkaBroker, topic: str, chance: Random) -> None:
    """Create the topic; all but the last segment of each partition is tiered when this returns."""
    keep_local = chance.random() < 0.3
    create_tiered_topic(broker, topic, PARTITIONS, {**BY_STEP, **(KEEP_LOCAL if keep_local else {})}, REPLICAS)
    with ExitStack() as closing:
        plain = closing.enter_context(RawProducer(broker))
        transactional = [
            closing.enter_context(TransactionalProducer(broker, f"{topic}-{number}")) for number in range(2)
        ]
        is_open = dict.fromkeys(transactional, False)
        # Of the future, so that they and not the clock, which markers carry, decide where segments end.
        now_ms = time.time_ns() // 1_000_000 + _TOMORROW_MS
        for segment in range(SEGMENTS):
            for partition in range(PARTITIONS):
                # By no transaction, so that each segment is there whatever becomes of them.
                plain.send(topic, _records(chance, now_ms + segment * _STEP_MS), partition, chance.choice(list(CODECS)))
                producer = chance.choice(transactional)
                producer.send(
                    topic, _records(chance, now_ms + segment * _STEP_MS), partition, chance.choice(list(CODECS))
                )
                is_open[producer] = True
            for producer in transactional:
                if is_open[producer] and (segment == SEGMENTS - 1 or chance.random() < 0.4):
                    chance.choice([producer.commit, producer.commit, producer.abort])()
                    is_open[producer] = False
    wait_until_tiered(broker, topic, deleted_locally=not keep_local)


def produce(broker: KafkaBroker, topic: str, partition: int, chance: Random) -> None:
    """A few records, which are not tiered."""
    with RawProducer(broker) as producer:
        producer.send(topic, _records(chance, time.time_ns() // 1_000_000), partition)


def _records(chance: Random, timestamp_ms: int) -> list[Record]:
    return [
        Record(
            chance.choice([None, b"", chance.randbytes(4)]),
            chance.choice([None, chance.randbytes(12)]),
            (),
            timestamp_ms,
        )
        for _ in range(chance.randint(4, 12))
    ]
