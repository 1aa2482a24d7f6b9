"""Producers at a steady rate, and every record that they sent, counted in a table.

A key is the producer's name and the record's number, and the value begins with it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.rigs.bench.shapes import check_delivery
from tests.rigs.stack.processes import LONG

TOPIC, PARTITIONS = "soak", 4
PLAIN, TRANSACTIONAL = "plain", ("txn0", "txn1")
NAME_BYTES, KEY_BYTES, RECORD_BYTES = 5, 17, 1000
RECORDS_PER_SECOND, RECORDS_PER_TRANSACTION = 120, 30
ABORTED = 4
"""One transaction in so many is."""
_TENTH = 0.1


class Producers:
    """Threads run them; `records` are those of each producer that have to be read, once it has ended."""

    def __init__(self) -> None:
        self.records: dict[str, int] = {}
        self.aborted = 0
        self.ended = threading.Event()

    def produce(self, bootstrap_servers: str) -> None:
        """Without transactions, to all partitions in turn, until `ended`.

        Raises:
            KafkaException: a record was refused.
        """
        producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 50})
        sent = 0
        while not self.ended.wait(_TENTH):
            for _ in range(int(RECORDS_PER_SECOND * _TENTH)):
                _send(producer, PLAIN, sent)
                sent += 1
            producer.poll(0)
        _flush(producer)
        self.records[PLAIN] = sent

    def transact(self, bootstrap_servers: str, name: str) -> None:
        """A transaction a second, until `ended`. The records of an aborted one come again in the next.

        Raises:
            KafkaException: as `produce`.
        """
        producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name})
        producer.init_transactions(LONG)
        committed = 0
        for turn in itertools.count(1):
            if self.ended.wait(1):
                break
            producer.begin_transaction()
            for number in range(committed, committed + RECORDS_PER_TRANSACTION):
                _send(producer, name, number)
            _flush(producer)
            if turn % ABORTED == 0:
                producer.abort_transaction(LONG)
                self.aborted += RECORDS_PER_TRANSACTION
            else:
                producer.commit_transaction(LONG)
                committed += RECORDS_PER_TRANSACTION
        self.records[name] = committed


def record(name: str, number: int) -> tuple[bytes, bytes]:
    """Its key and its value."""
    key = f"{name:<{NAME_BYTES}}{number:0{KEY_BYTES - NAME_BYTES}}".encode()
    return key, key.ljust(RECORD_BYTES, b".")


def _send(producer: Producer, name: str, number: int) -> None:
    key, value = record(name, number)
    producer.produce(TOPIC, value, key, number % PARTITIONS, on_delivery=check_delivery)


def _flush(producer: Producer) -> None:
    left = producer.flush(LONG)
    assert not left, f"{left} records were not acknowledged within {LONG:.0f} s"


@dataclass(frozen=True)
class Count:
    """`foreign` are those whose value is another record's, or that nobody sent."""

    records: int
    lost: int
    doubled: int
    foreign: int


def count(table: Path, sent: Mapping[str, int]) -> Count:
    """The records of a table against how many each producer has sent."""
    foreign = 0
    batches = []
    for batch in DeltaTable(table).to_pyarrow_dataset().to_batches(columns=["key", "value"]):
        own = pc.equal(pc.binary_slice(batch["value"], 0, KEY_BYTES), batch["key"])
        foreign += len(own) - (pc.sum(own).as_py() or 0)
        batches.append(_numbered(batch["key"]))
    numbered = pa.Table.from_batches(batches).group_by("producer")
    found = {
        row["producer"]: row
        for row in numbered.aggregate(
            [("number", "count"), ("number", "count_distinct"), ("number", "max")]
        ).to_pylist()
    }
    each = {name: found.pop(name, {"number_count": 0, "number_count_distinct": 0}) for name in sent}
    foreign += sum(row["number_count"] for row in found.values())
    foreign += sum(row.get("number_max", -1) >= sent[name] for name, row in each.items())
    return Count(
        records=sum(row["number_count"] for row in each.values()),
        lost=sum(sent[name] - row["number_count_distinct"] for name, row in each.items()),
        doubled=sum(row["number_count"] - row["number_count_distinct"] for row in each.values()),
        foreign=foreign,
    )


def _numbered(keys: pa.Array) -> pa.RecordBatch:
    name = pc.utf8_rtrim_whitespace(pc.binary_slice(keys, 0, NAME_BYTES).cast(pa.string()))
    number = pc.binary_slice(keys, NAME_BYTES, KEY_BYTES).cast(pa.string()).cast(pa.int64())
    return pa.RecordBatch.from_arrays([name, number], ["producer", "number"])
