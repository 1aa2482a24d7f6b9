"""Random histories of change records, and the rows that they leave."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import orjson

from tests.rigs.stack.rows import Record


class Form(StrEnum):
    """Form of records. `FIELDS` are Avro values with the schemas `VERSIONS` of a registry."""

    PLAIN = "plain"
    DEBEZIUM = "debezium"
    FIELDS = "fields"


VERSIONS = {1: ("name", "note"), 2: ("name",), 3: ("name", "note", "more"), 4: ("name", "more")}
"""Fields of each version of the schema, besides `id`: fields are removed, and return."""
FIRST_LATE = 100
"""Number to add to a version for the id of the same schema that the registry lacks until a redrive."""


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
    record's timestamp, and `version` the version of its schema. The schema of a `late` record is not known at first.
    """

    key: int
    name: str | None
    at: int
    tombstone: bool = False
    garbage: bool = False
    version: int = 1
    late: bool = False

    def record(self, form: Form, first_id: int) -> Record:
        """Return the record; `first_id` is the number to add to a version for the id of its schema."""
        key = b"%d" % self.key if form is Form.PLAIN else orjson.dumps({"id": self.key})
        if self.garbage:
            return Record(key, b"\xffgarbage", (), self.at)
        if self.name is None and (self.tombstone or form is not Form.DEBEZIUM):
            return Record(key, None, (), self.at)
        if form is Form.PLAIN:
            return Record(key, (self.name or "").encode(), (), self.at)
        if form is Form.FIELDS:
            number = first_id + self.version + (FIRST_LATE if self.late else 0)
            fields = (_text(field == "name", value) for field, value in self.values(form).items())
            content = bytes([2 * self.key]) + b"".join(fields)
            return Record(key, b"\0" + number.to_bytes(4) + content, (), self.at)
        image = {"id": self.key, "name": self.name}
        before, after, op = (image, None, "d") if self.name is None else (None, image, "u")
        return Record(key, orjson.dumps({"before": before, "after": after, "op": op, "ts_ms": self.at}), (), self.at)

    def values(self, form: Form) -> dict[str, str]:
        """Return the values of the record's fields, besides the key."""
        names = VERSIONS[self.version] if form is Form.FIELDS else ("value" if form is Form.PLAIN else "name",)
        own = self.name or ""
        return {name: own if name in ("name", "value") else f"{name} {own}" for name in names}


def _text(is_plain: bool, value: str) -> bytes:
    return (b"" if is_plain else b"\2") + bytes([2 * len(value)]) + value.encode()


@dataclass(frozen=True)
class Start:
    """One start of the query, while `newest` is the newest version of the schema.

    It ends before its batch number `batches` begins; None: when all is read. The commit number `at` has the `fault`.
    """

    newest: int
    batches: int | None = None
    fault: Fault = Fault.NONE
    at: int = 0


@dataclass(frozen=True)
class Step:
    """Records that a step writes, by partition; then starts of the query, of which the last one reads everything.

    `limit` is the most offsets of a micro-batch. If `optimize` is true, the table's files are merged before the starts.
    If `redrive` is true, late schemas get known afterwards, and dead letters are redriven. If `own` is true, the user's
    own column gets a value in all rows before the starts.
    """

    records: dict[int, list[Change]]
    limit: int
    starts: tuple[Start, ...]
    optimize: bool
    redrive: bool
    own: bool


@dataclass(frozen=True)
class History:
    """History of one topic and its table.

    If `ordered` is true, the timestamp orders records. If `moves` is true, keys are in any partition, else a key is in
    one partition. If `placed` is true, the table has partition and offset. If `by_spark` is true, delta-spark merges;
    else deltalake does, but for a table with deletion vectors. `memory` is the size in bytes of the rows that a task
    keeps. If `adds` is true, new fields become columns. If `has_own` is true, the table has a column of the user's own.
    """

    name: str
    form: Form
    ordered: bool
    moves: bool
    placed: bool
    by_spark: bool
    deletion_vectors: bool
    dead_letters: bool
    adds: bool
    has_own: bool
    memory: int
    steps: list[Step] = field(default_factory=list)

    @property
    def needs_spark(self) -> bool:
        return self.by_spark or self.deletion_vectors or any(step.redrive for step in self.steps)

    @property
    def number(self) -> int:
        return int(self.name.split("-")[-1])


def draw_history(name: str) -> History:
    """Return the history of this name, each time the same. It has at least one record."""
    chance = random.Random(name)
    drawn = _draw(name, chance)
    while not any(step.records for step in drawn.steps):
        drawn = _draw(name, chance)
    return drawn


def _draw(name: str, chance: random.Random) -> History:
    by_spark = chance.random() < 0.3
    history = History(
        name, chance.choice([*Form, Form.FIELDS]), chance.random() < 0.3, chance.random() < 0.5, chance.random() < 0.8,
        by_spark, by_spark and chance.random() < 0.4, chance.random() < 0.4, chance.random() < 0.5,
        chance.random() < 0.5, chance.choice([1, 400, 1 << 20]),
    )  # fmt: skip
    redrives = by_spark and history.form is Form.FIELDS and (history.placed or history.ordered)
    history = replace(history, dead_letters=history.dead_letters or redrives)
    partitions, keys = chance.randint(1, 4), chance.randint(1, 12)
    for number in range(chance.randint(2, 4)):
        # Partitions that come later have their first records in a later step.
        known = range(min(partitions, 1 + number * 2)) if chance.random() < 0.5 else range(partitions)
        records: dict[int, list[Change]] = {}
        for _ in range(chance.choice([0, 1, 5, 30])):
            key = chance.randrange(keys)
            # Most keys stay in their partition, or each micro-batch would have one that has moved.
            moves = history.moves and (history.ordered or chance.random() < 0.05)
            partition = chance.choice(list(known)) if moves else key % partitions
            for change in _changes(chance, history, key, keys, partitions) if partition in known else ():
                # A late record may be in any partition, because it is a dead letter until a redrive.
                place = chance.choice(list(known)) if change.late and history.moves else partition
                records.setdefault(place, []).append(change)
        limit = chance.choice([1 << 30, 1 << 30, 12, 5, 2])
        starts = tuple(_starts(chance))
        redrive = redrives and chance.random() < 0.5
        history.steps.append(Step(records, limit, starts, chance.random() < 0.2, redrive, chance.random() < 0.5))
    return history


def _starts(chance: random.Random) -> Iterator[Start]:
    for _ in range(chance.choice([0, 0, 1, 3])):
        fault = chance.choice([Fault.NONE, Fault.NONE, *Fault])
        yield Start(chance.choice([*VERSIONS]), chance.choice([1, 1, 2]), fault, chance.randrange(2))
    yield Start(chance.choice([*VERSIONS]))


def _changes(chance: random.Random, history: History, key: int, keys: int, partitions: int) -> Iterable[Change]:
    at = 1_700_000_000_000 + chance.randrange(20)
    kind = chance.random()
    version = chance.choice([*VERSIONS])
    if history.dead_letters and kind > 0.95:
        yield Change(key, None, at, garbage=True)
    elif kind < 0.25:
        # The row is inserted again just before or after, with an order of its own.
        again = [Change(key, f"again {at}", at + chance.randrange(-9, 10), version=version)] * chance.choice([0, 0, 1])
        before = again if chance.random() < 0.5 else []
        yield from before
        yield Change(key, None, at, tombstone=history.form is not Form.DEBEZIUM or chance.random() < 0.3)
        yield from [] if before else again
        if history.form is Form.DEBEZIUM:
            yield Change(key, None, at, tombstone=True)
            if chance.random() < 0.5:  # the primary key changes, to one of the same partition
                yield Change((key + partitions) % (keys * partitions), f"was {key}", at)
    else:
        late = history.dead_letters and history.form is Form.FIELDS and chance.random() < 0.2
        yield Change(key, chance.choice(["", "x", f"v{chance.randrange(99)}"]), at, version=version, late=late)


@dataclass(frozen=True)
class Row:
    """Row of the table: values by column, and where its record is. `own` is the value of the user's own column."""

    values: Mapping[str, str]
    at: int
    partition: int
    offset: int
    own: str | None = None


Placed = tuple[int, int, Change]
"""Partition, offset and change of a record."""


class UnorderedError(Exception):
    """A key has records in several partitions, and nothing orders them."""


@dataclass
class State:
    """Rows of the table by key, and the records that are dead letters.

    Without `ordered`, a row of another partition is an error if the table shows the partition (`placed`).
    """

    form: Form
    placed: bool
    ordered: bool
    knows_late: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    dead: list[Placed] = field(default_factory=list)

    def apply(self, records: Iterable[Placed]) -> None:
        """Apply the records of one micro-batch; raise UnorderedError, and change nothing, if they have no order."""
        alive = [each for each in records if not self._is_dead(each[2])]
        last = self.last(alive)
        for key, (partition, _, _) in last.items():
            row = self.rows.get(key)
            if not self.ordered and self.placed and row is not None and row.partition != partition:
                raise UnorderedError
        self.dead += [each for each in records if self._is_dead(each[2])]
        own = self._own(alive, by_offset=False)
        for key, each in last.items():
            self._set(each, by_offset=False, own=own[key])

    def redrive(self) -> int:
        """Apply the dead letters that decode by now; return how many stay because nothing orders them."""
        self.knows_late = True
        ready = [each for each in self.dead if not self._is_dead(each[2])]
        mixed = set()
        for key in {each[2].key for each in ready}:
            places = {partition for partition, _, change in ready if change.key == key}
            row = self.rows.get(key)
            if not self.ordered and len(places | ({row.partition} if row else set())) > 1:
                mixed.add(key)
        chosen = [each for each in ready if each[2].key not in mixed]
        own = self._own(chosen, by_offset=not self.ordered)
        for key, each in self.last(chosen).items():
            self._set(each, by_offset=not self.ordered, own=own[key])
        self.dead = [each for each in self.dead if each not in chosen]
        return len(ready) - len(chosen)

    def last(self, records: Iterable[Placed]) -> dict[int, Placed]:
        """Return the last record of each key; raise UnorderedError if a key's records have no order."""
        last: dict[int, Placed] = {}
        for each in records:
            partition, offset, change = each
            known = last.setdefault(change.key, each)
            if not self.ordered and known[0] != partition:
                raise UnorderedError
            place = (change.at if self.ordered else 0, f"orders/{partition}", offset)
            if place >= (known[2].at if self.ordered else 0, f"orders/{known[0]}", known[1]):
                last[change.key] = each
        return last

    def truth(self, records: Iterable[Placed]) -> dict[int, Row]:
        """Return the rows of the last records of all keys, as `verify` expects them."""
        last = self.last(each for each in records if not self._is_dead(each[2]))
        return {key: self._row(each) for key, each in last.items() if each[2].name is not None}

    def ties(self, records: Iterable[Placed]) -> dict[int, list[Row | None]]:
        """Return what the table may have for each key in place of `truth`; None stands for no row.

        The last records of several partitions have the same order. The micro-batches decide which one the table keeps.
        """
        last: dict[tuple[int, int], Placed] = {}
        for each in sorted(records, key=lambda placed: (placed[2].at, placed[1])):
            if not self._is_dead(each[2]):
                last[each[2].key, each[0]] = each
        newest: dict[int, int] = {}
        for (key, _), each in last.items():
            newest[key] = max(newest.get(key, 0), each[2].at)
        found: dict[int, list[Row | None]] = {}
        for (key, _), each in last.items() if self.ordered else ():
            if each[2].at == newest[key]:
                found.setdefault(key, []).append(None if each[2].name is None else self._row(each))
        return found

    def _is_dead(self, change: Change) -> bool:
        return change.garbage or (change.late and not self.knows_late)

    def _row(self, each: Placed, own: str | None = None) -> Row:
        partition, offset, change = each
        return Row(change.values(self.form), change.at, partition, offset, own)

    def _own(self, records: Sequence[Placed], *, by_offset: bool) -> dict[int, str | None]:
        """Return the value of the user's own column, by key, if each record is in a micro-batch of its own."""
        rows = dict(self.rows)
        for each in sorted(records, key=lambda placed: (f"orders/{placed[0]}", placed[1])):
            change, row = each[2], rows.get(each[2].key)
            if row is not None and self._is_newer(row, each, by_offset=by_offset):
                continue
            rows.pop(change.key, None)
            if change.name is not None:
                rows[change.key] = self._row(each, row.own if row is not None else None)
        return {each[2].key: row.own if (row := rows.get(each[2].key)) else None for each in records}

    def _is_newer(self, row: Row, each: Placed, *, by_offset: bool) -> bool:
        return (self.ordered and row.at > each[2].at) or (by_offset and row.offset > each[1])

    def _set(self, each: Placed, *, by_offset: bool, own: str | None) -> None:
        """Set the row of the record's key, with the value `own` of the user's own column, or delete the row.

        `by_offset`: the row stays if its record has a larger offset.
        """
        change = each[2]
        row = self.rows.get(change.key)
        if row is not None and self._is_newer(row, each, by_offset=by_offset):
            return
        if change.name is None:
            self.rows.pop(change.key, None)
        else:
            self.rows[change.key] = self._row(each, own)
