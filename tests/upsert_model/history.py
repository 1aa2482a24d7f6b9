"""Random histories of change records, and the rows that they leave."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import orjson

from tests.stack.rows import Record


class Fault(StrEnum):
    """Accident at the commit of a micro-batch, once in a run."""

    NONE = "none"
    BEFORE = "the driver dies before the commit"
    AFTER = "the driver dies after the commit"
    UNCERTAIN = "the response to the commit is lost"
    TWICE = "a second driver commits the same batch"


@dataclass(frozen=True)
class Change:
    """One record: it sets the row of `key` to `name`, or deletes the row if `name` is None.

    `tombstone` is true if the record has a null value; Debezium's deletes also have a form with a value. `at` is the
    record's timestamp.
    """

    key: int
    name: str | None
    at: int
    tombstone: bool = False
    garbage: bool = False

    def record(self, *, debezium: bool) -> Record:
        key = orjson.dumps({"id": self.key}) if debezium else b"%d" % self.key
        if self.garbage:
            return Record(key, b"\xffgarbage", (), self.at)
        if self.name is None and (self.tombstone or not debezium):
            return Record(key, None, (), self.at)
        if not debezium:
            return Record(key, (self.name or "").encode(), (), self.at)
        image = {"id": self.key, "name": self.name}
        before, after, op = (image, None, "d") if self.name is None else (None, image, "u")
        return Record(key, orjson.dumps({"before": before, "after": after, "op": op, "ts_ms": self.at}), (), self.at)


@dataclass(frozen=True)
class Step:
    """Records that a step writes, by partition; then a run of the query, whose batch number `at` has the fault.

    `limit` is the most offsets of a micro-batch. If `optimize` is true, the table's files are merged before the run.
    """

    records: dict[int, list[Change]]
    limit: int
    fault: Fault
    at: int
    optimize: bool


@dataclass(frozen=True)
class History:
    """History of one topic and its table.

    If `across` is true, keys are in any partition and the timestamp orders them; else a key is in one partition.
    `memory` is the size in bytes of the rows that a task keeps. If `by_spark` is true, delta-spark merges; else
    deltalake does, but for a table with deletion vectors.
    """

    name: str
    debezium: bool
    across: bool
    deletion_vectors: bool
    dead_letters: bool
    by_spark: bool
    memory: int
    steps: list[Step] = field(default_factory=list)


def draw_history(name: str) -> History:
    """Return the history of this name, each time the same. It has at least one record."""
    chance = random.Random(name)
    drawn = _draw(name, chance)
    while not any(step.records for step in drawn.steps):
        drawn = _draw(name, chance)
    return drawn


def _draw(name: str, chance: random.Random) -> History:
    history = History(
        name, chance.random() < 0.5, chance.random() < 0.4, chance.random() < 0.3, chance.random() < 0.2,
        chance.random() < 0.4, chance.choice([1, 400, 1 << 20]),
    )  # fmt: skip
    partitions, keys = chance.randint(1, 4), chance.randint(1, 12)
    for number in range(chance.randint(2, 4)):
        # Partitions that come later have their first records in a later step.
        known = range(min(partitions, 1 + number * 2)) if chance.random() < 0.5 else range(partitions)
        records: dict[int, list[Change]] = {}
        for _ in range(chance.choice([0, 1, 5, 30])):
            key = chance.randrange(keys)
            partition = chance.choice(list(known)) if history.across else key % partitions
            if partition in known:
                records.setdefault(partition, []).extend(_changes(chance, history, key, keys, partitions))
        fault = chance.choice([Fault.NONE, Fault.NONE, *Fault])
        limit = chance.choice([1 << 30, 1 << 30, 12, 5])
        history.steps.append(Step(records, limit, fault, chance.randrange(2), chance.random() < 0.2))
    return history


def _changes(chance: random.Random, history: History, key: int, keys: int, partitions: int) -> Iterable[Change]:
    at = 1_700_000_000_000 + chance.randrange(20)
    kind = chance.random()
    if history.dead_letters and kind > 0.9:
        yield Change(key, None, at, garbage=True)
    elif kind < 0.25:
        yield Change(key, None, at, tombstone=chance.random() < 0.3)
        if history.debezium:
            yield Change(key, None, at, tombstone=True)
            if chance.random() < 0.5:  # the primary key changes, to one of the same partition
                yield Change((key + partitions) % (keys * partitions), f"was {key}", at)
    else:
        yield Change(key, chance.choice(["", "x", f"v{chance.randrange(99)}"]), at)


Rows = dict[int, tuple[str, int]]
"""Name and timestamp of each row, by key."""


def apply_batch(rows: Rows, batch: dict[int, list[tuple[int, Change]]], *, across: bool) -> None:
    """Apply the records of one micro-batch (offset and change, by partition) to the model's rows."""
    last: dict[int, tuple[tuple[int, str, int], Change]] = {}
    for partition, records in batch.items():
        for offset, change in records:
            if change.garbage:
                continue
            place = (change.at if across else 0, f"orders/{partition}", offset)
            if change.key not in last or place > last[change.key][0]:
                last[change.key] = place, change
    for key, (_, change) in last.items():
        if across and key in rows and rows[key][1] > change.at:
            continue
        if change.name is None:
            rows.pop(key, None)
        else:
            rows[key] = change.name, change.at
