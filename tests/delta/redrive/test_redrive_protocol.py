"""Redrives of one topic in any order of their steps, on tables in memory that commit as Delta's do."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, sampled_from

from tests.depth import examples
from tiered_stream.delta.redrive.dead_letter_marks import ATTEMPTS, Outcome, finish
from tiered_stream.errors import TableError

ALL = frozenset(range(4))
EVEN, ODD, NONE = frozenset({0, 2}), frozenset({1, 3}), frozenset[int]()
LEAST_STEPS = 10
HISTORIES = 1000
CRASHES = 0.01


class CrashError(Exception):
    pass


@dataclass
class Tables:
    """Letters 0 to 3, each with its mark, the rows, and the table of rows' transactions."""

    letters: dict[int, int | None] = field(default_factory=lambda: dict.fromkeys(sorted(ALL)))
    letters_version: int = 0
    rows: list[int] = field(default_factory=list)
    outcomes: dict[int | None, Outcome] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)

    def check_exactly_once(self) -> None:
        """Letters that are rows already are deleted by the next redrive, as their number's outcome says."""
        left = [offset for offset, mark in self.letters.items() if self.outcomes.get(mark) is not Outcome.APPENDED]
        assert sorted([*self.rows, *left]) == sorted(ALL), self


@dataclass
class Redrive:
    """One redrive, to which `decodes` decode. It calls `turn` before each look at a table, and each commit."""

    tables: Tables
    decodes: frozenset[int]
    turn: Callable[[], None] = lambda: None

    def run(self) -> None:
        self._finish_all()
        for _ in range(3):
            self.turn()
            if not self._ready():
                return
            self._mark()
            self._finish_all()
        raise TableError("others have given all marks up")

    def _finish_all(self) -> None:
        self.turn()
        for number in sorted({mark for mark in self.tables.letters.values() if mark is not None}):
            finish(Marked(self, number), "rows")

    def _ready(self) -> list[int]:
        return [offset for offset, mark in self.tables.letters.items() if mark is None and offset in self.decodes]

    def _mark(self) -> None:
        def marks() -> dict[int, int | None]:
            number = next(self.tables.numbers)
            return dict.fromkeys(self._ready(), number)

        self.change(marks)

    def change(self, changes: Callable[[], dict[int, int | None]], *, delete: bool = False) -> None:
        """Commit changed marks, tried again where another commit of the letters came first."""
        for _ in range(ATTEMPTS):
            self.turn()
            begun, changed = self.tables.letters_version, changes()
            self.turn()
            if begun == self.tables.letters_version:
                self.tables.letters_version += 1
                self.tables.letters.update(changed)
                for offset in changed if delete else ():
                    del self.tables.letters[offset]
                self.turn()
                return
        raise TableError("another redrive is running")


@dataclass
class Marked:
    """The letters of one number; see `redrive_protocol.MarkedDeadLetters`."""

    redrive: Redrive
    number: int

    def outcome(self) -> Outcome | None:
        self.redrive.turn()
        return self.redrive.tables.outcomes.get(self.number)

    def decode(self) -> bool:
        self.redrive.turn()
        return self._letters() <= self.redrive.decodes

    def append(self) -> int:
        self.redrive.turn()
        letters = self._letters()
        return len(letters) if self._commit(Outcome.APPENDED, letters) else 0

    def give_up(self) -> None:
        self._commit(Outcome.GIVEN_UP, set())

    def delete(self) -> None:
        self.redrive.change(lambda: dict.fromkeys(self._letters()), delete=True)

    def clear(self) -> None:
        self.redrive.change(lambda: dict.fromkeys(self._letters()))

    def _letters(self) -> set[int]:
        return {offset for offset, mark in self.redrive.tables.letters.items() if mark == self.number}

    def _commit(self, outcome: Outcome, rows: set[int]) -> bool:
        """As Delta does it: skipped where the version is there, refused where it came meanwhile."""
        tables, turn = self.redrive.tables, self.redrive.turn
        turn()
        if self.number in tables.outcomes:
            return False
        turn()
        if self.number in tables.outcomes:
            return False
        tables.outcomes[self.number] = outcome
        tables.rows += rows
        turn()
        return True


class Turns:
    """Programs in threads of which one at a time goes on, by one step."""

    def __init__(self, programs: Sequence[Callable[[Callable[[], None]], None]]) -> None:
        self._waiting = [threading.Semaphore(0) for _ in programs]
        self._back = threading.Semaphore(0)
        self._crashes = [False] * len(programs)
        self.ended = [False] * len(programs)
        self._threads = [threading.Thread(target=self._run, args=each, daemon=True) for each in enumerate(programs)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int, program: Callable[[Callable[[], None]], None]) -> None:
        def turn() -> None:
            self._back.release()
            self._waiting[number].acquire()
            if self._crashes[number]:
                raise CrashError

        self._waiting[number].acquire()
        try:
            program(turn)
        except (CrashError, TableError):
            pass
        finally:
            self.ended[number] = True
            self._back.release()

    @property
    def running(self) -> list[int]:
        return [number for number, ended in enumerate(self.ended) if not ended]

    def step(self, number: int, *, crash: bool = False) -> None:
        """Let one go on up to its next turn, or crash; nothing where it has ended."""
        if not self.ended[number]:
            self._crashes[number] = crash
            self._waiting[number].release()
            self._back.acquire()

    def finish(self, number: int) -> None:
        while not self.ended[number]:
            self.step(number)

    def join(self) -> None:
        for number in range(len(self._threads)):
            self.finish(number)
        for thread in self._threads:
            thread.join()


def turns_of(tables: Tables, *decodes: frozenset[int]) -> Turns:
    def program(each: frozenset[int]) -> Callable[[Callable[[], None]], None]:
        return lambda turn: Redrive(tables, each, turn).run()

    return Turns([program(each) for each in decodes])


def check_end(tables: Tables, turns: Turns) -> None:
    """What is there after all have ended is exactly once, and one more redrive brings everything in."""
    turns.join()
    tables.check_exactly_once()
    Redrive(tables, EVEN).run()
    tables.check_exactly_once()
    assert set(tables.letters.values()) <= {None} and tables.rows and set(tables.rows) >= EVEN, tables
    Redrive(tables, ALL).run()
    assert (sorted(tables.rows), tables.letters) == (sorted(ALL), {}), tables


@pytest.mark.parametrize(("first", "second"), [(ALL, ALL), (ALL, EVEN), (EVEN, ALL), (EVEN, ODD), (ALL, NONE)])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_redrive_that_stops_anywhere_within_another_one_leaves_each_letter_in_one_place(
    first: frozenset[int], second: frozenset[int], crashes: bool
) -> None:
    for before in count():
        for within in count():
            tables = Tables()
            turns = turns_of(tables, first, second)
            for _ in range(before):
                turns.step(0)
            for _ in range(within):
                turns.step(1)
            running = turns.running
            turns.step(1, crash=crashes)
            turns.finish(0)
            check_end(tables, turns)
            if 1 not in running:
                break
        if 0 not in running:
            break
    assert before > LEAST_STEPS


@settings(max_examples=examples(HISTORIES))
@given(seed=integers(0, (1 << 32) - 1), decodes=lists(sampled_from([ALL, EVEN, ODD, NONE]), min_size=2, max_size=4))
def test_redrives_in_any_order_leave_each_letter_in_one_place(seed: int, decodes: list[frozenset[int]]) -> None:
    chance, tables = random.Random(seed), Tables()
    turns = turns_of(tables, *decodes)
    while turns.running:
        turns.step(chance.choice(turns.running), crash=chance.random() < CRASHES)
    check_end(tables, turns)
