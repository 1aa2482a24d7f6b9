"""The topics that the bench reads: what each is like, and how it is made, once."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.rigs.bench.documents import documents
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import KEEP_LOCAL, create_tiered_topic, delete_topic, roll, wait_until_tiered

_TIERING_SECONDS = 1800
_TRANSACTION_RECORDS = 5_000
_JSON_LINES = 10_000
_BATCH_OVERHEAD = 1 << 10
_RECORDS_OF_A_KEY = 10
_KEY_STEP = 7919
"""A prime number, so that the keys of neighbouring records lie far apart."""


@dataclass(frozen=True)
class Shape:
    """A topic: values of `record_bytes` each, over all partitions; without keys, unless they are `keyed`.

    `values`: `letters`, `keyed` (letters, ten for each key), `json` (which compress to a fifth), `transactions`
    (letters, a tenth of them aborted), `large` (a batch each, and beyond what brokers take by default), or `rows-json`
    and `rows-avro` (`typed_rows.documents`, of about `record_bytes`).
    """

    name: str
    records: int
    record_bytes: int = 100
    partitions: int = 4
    segment_bytes: int = 64 << 20
    producer: Mapping[str, str] = field(default_factory=dict)
    values: str = "letters"
    tiered: bool = True

    @property
    def topic(self) -> str:
        """Its name tells what is in it, so that what an earlier run has made is never taken for another."""
        return f"{self.name}-{sha256(repr(self).encode()).hexdigest()[:8]}"

    @property
    def rows(self) -> int:
        """What a reader finds. One more in each partition closed its last full segment."""
        return self.records + (self.partitions if self.tiered else 0)

    @property
    def keys(self) -> int:
        """How many keys `keyed` records have."""
        return max(1, self.records // _RECORDS_OF_A_KEY)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("warm-up", 100_000),
        Shape("A", 10_000_000),
        Shape("A4", 40_000_000),
        Shape("B", 1_000_000, 1024),
        Shape("C-lz4", 10_000_000, producer={"compression.type": "lz4"}, values="json"),
        Shape("C-zstd", 10_000_000, producer={"compression.type": "zstd"}, values="json"),
        Shape("D", 10_000_000, values="transactions"),
        Shape("E", 20_000_000, segment_bytes=1 << 20),
        Shape("G", 10_000_000, tiered=False),
        # Of the producer's memory a batch takes far more than its one record: a slow broker would fill its heap.
        Shape("K", 1_000_000, producer={"batch.size": "0", "linger.ms": "0", "buffer.memory": str(1 << 20)}),
        Shape("M", 24_000_000, partitions=2, segment_bytes=1 << 30),
        Shape("N", 1_500, 900_000),
        Shape("N100", 24, 100_000_000, partitions=2, segment_bytes=1 << 30, values="large"),
        Shape("U", 10_000_000, values="keyed"),
        Shape("T-json", 5_000_000, 200, values="rows-json"),
        Shape("T-avro", 5_000_000, 100, values="rows-avro"),
    )
}


def scaled(scale: float) -> dict[str, Shape]:
    """All shapes with so many times their records."""
    return {name: replace(each, records=max(1, round(each.records * scale))) for name, each in SHAPES.items()}


class Topics:
    """The topics in a stack that is kept between runs: those that `made` lists are whole."""

    def __init__(self, stack: TieredStack, folder: Path) -> None:
        self._stack = stack
        self._made = folder / "made.json"
        self._folder = folder

    def ensure(self, shape: Shape) -> Shape:
        """The shape, its topic filled and tiered."""
        made = json.loads(self._made.read_text()) if self._made.exists() else {}
        if shape.topic not in made:
            fill(self._stack.broker, shape, self._folder)
            os.sync()  # or the first run shares the disk with what was just written
            self._made.write_text(json.dumps({**made, shape.topic: asdict(shape)}, indent=2))
        return shape


def fill(broker: KafkaBroker, shape: Shape, folder: Path) -> None:
    """Make the topic; where it is tiered, nearly all of its records are in S3 only then."""
    with broker.admin() as admin:
        left_over = shape.topic in admin.list_topics()
    if left_over:  # by a run that was stopped meanwhile
        delete_topic(broker, shape.topic)
    config = {"segment.bytes": str(shape.segment_bytes)}
    if not shape.tiered:
        config |= {"remote.storage.enable": "false", **KEEP_LOCAL}
    if shape.values == "large":
        config["max.message.bytes"] = str(shape.record_bytes + _BATCH_OVERHEAD)
    create_tiered_topic(broker, shape.topic, shape.partitions, config)
    _PRODUCE[shape.values](broker, shape, folder)
    if shape.tiered:
        roll(broker, shape.topic)
        wait_until_tiered(broker, shape.topic, timeout=_TIERING_SECONDS)


def _letters(broker: KafkaBroker, shape: Shape, folder: Path) -> None:
    _bulk(broker, shape)


def _json(broker: KafkaBroker, shape: Shape, folder: Path) -> None:
    """Events as services write them: of few words, and of few customers."""
    chosen = random.Random(0)
    lines = [
        json.dumps({
            "order": chosen.randrange(10**9), "customer": f"customer-{chosen.randrange(1000)}",
            "status": chosen.choice(["created", "paid", "sent", "returned"]),
        })[: shape.record_bytes].ljust(shape.record_bytes)
        for _ in range(_JSON_LINES)
    ]  # fmt: skip
    payload = folder / "payload.jsonl"
    payload.write_text("\n".join(lines))
    _bulk(broker, shape, payload)


def _bulk(broker: KafkaBroker, shape: Shape, payload: Path | None = None) -> None:
    produce_bulk(
        broker, shape.topic, shape.records, shape.record_bytes, shape.producer, _TIERING_SECONDS, payload=payload
    )  # fmt: skip


def _transactions(broker: KafkaBroker, shape: Shape, folder: Path) -> None:
    """`records` in all, and a tenth more that were aborted."""
    producer = Producer({
        "bootstrap.servers": broker.bootstrap_servers, "transactional.id": shape.topic, "linger.ms": 20,
        "batch.size": 262144, "queue.buffering.max.messages": 200_000,
    })  # fmt: skip
    producer.init_transactions()
    value = random.Random(0).randbytes(shape.record_bytes)
    transactions = -(-shape.records // _TRANSACTION_RECORDS)
    for number in range(transactions):
        size = min(_TRANSACTION_RECORDS, shape.records - number * _TRANSACTION_RECORDS)
        _transaction(producer, shape, value, size, producer.commit_transaction)
        if number % 10 == 9:
            _transaction(producer, shape, value, _TRANSACTION_RECORDS, partial(_abort, producer))


def _transaction(producer: Producer, shape: Shape, value: bytes, size: int, end: Callable[[], object]) -> None:
    producer.begin_transaction()
    for number in range(size):
        producer.produce(shape.topic, value, partition=number % shape.partitions)
    end()


def _abort(producer: Producer) -> None:
    producer.flush()  # or what was not sent yet is never in the log
    producer.abort_transaction()


def _large(broker: KafkaBroker, shape: Shape, folder: Path) -> None:
    """One after the other: a broker has little memory."""
    producer = Producer({
        "bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": shape.record_bytes + _BATCH_OVERHEAD,
    })  # fmt: skip
    value = random.Random(0).randbytes(shape.record_bytes)
    for number in range(shape.records):
        producer.produce(shape.topic, value, partition=number % shape.partitions, on_delivery=check_delivery)
        producer.flush()


def check_delivery(error: KafkaError | None, _: Message) -> None:
    """That a record was acknowledged; what this raises, `flush` does."""
    if error is not None:
        raise KafkaException(error)


def _keyed(broker: KafkaBroker, shape: Shape, folder: Path) -> None:
    """Each key in turn, with a value that begins with the number of the record; a key stays in one partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "batch.size": 262144})
    rest = bytes(random.Random(0).choices(range(97, 123), k=shape.record_bytes - 12))
    for number in range(shape.records):
        key = number * _KEY_STEP % shape.keys
        _sent(producer, shape.topic, b"%012d" % number + rest, key % shape.partitions, b"%012d" % key)
    producer.flush()


def _documents(broker: KafkaBroker, shape: Shape, folder: Path) -> None:
    values = documents(shape.values, _JSON_LINES)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "batch.size": 262144})
    for number in range(shape.records):
        _sent(producer, shape.topic, values[number % len(values)], number % shape.partitions)
    producer.flush()


def _sent(producer: Producer, topic: str, value: bytes, partition: int, key: bytes | None = None) -> None:
    """Once there is room for it."""
    while True:
        try:
            return producer.produce(topic, value, key, partition)
        except BufferError:
            producer.poll(1)


_PRODUCE: Mapping[str, Callable[[KafkaBroker, Shape, Path], None]] = {
    "letters": _letters,
    "keyed": _keyed,
    "json": _json,
    "transactions": _transactions,
    "large": _large,
    "rows-json": _documents,
    "rows-avro": _documents,
}
