"""A round: a topic, tables that it is landed in under faults, and at last a fault that takes records away.

A tally has how often each kind of fault struck, and how the queries and their tables took it.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from tests.archives import consumed
from tests.golden import NAMES
from tests.rigs.chaos.checking import Verdict, compare
from tests.rigs.chaos.faults import LASTING, PASSING, STALLS, Fault
from tests.rigs.chaos.rig import READ_TIMEOUT_MS, Query, Rig
from tests.rigs.chaos.topics import fill
from tests.rigs.stack.consume import READ_COMMITTED, READ_UNCOMMITTED
from tests.rigs.tables import table

TIMES, RECOVERED, RIGHT, WRONG, LOST, DOUBLED = "times", "recovered", "right error", "wrong error", "lost", "doubled"
COLUMNS = (TIMES, RECOVERED, RIGHT, WRONG, LOST, DOUBLED)
"""`lost` and `doubled` count records of tables that the kind had struck just before."""


@dataclass
class Tally:
    """`counts` has the columns by kind; `failures` say what was not as it should be, each with its table."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    failures: list[str] = field(default_factory=list)
    tables: int = 0

    @property
    def faults(self) -> int:
        return sum(count[TIMES] for count in self.counts.values())

    def count(self, kind: str, outcome: str) -> None:
        """One more fault of the kind, and how the query took it."""
        self.counts[kind].update([TIMES, outcome])

    def count_records(self, kinds: Collection[str], verdict: Verdict) -> None:
        """Count what a table lacks, or has twice, after the last faults."""
        for kind in set(kinds):
            self.counts[kind][LOST] += len(verdict.lost) + len(verdict.unreported)
            self.counts[kind][DOUBLED] += len(verdict.doubled)

    def table(self) -> Table:
        counts = sorted(self.counts.items())
        rows = ((kind, *(str(count[column]) for column in COLUMNS)) for kind, count in counts)
        return table(None, ("kind", *COLUMNS), rows, texts=("kind",))

    def write(self, file: Path, minutes: float) -> None:
        """All of it as JSON."""
        kinds = {kind: {column: count[column] for column in COLUMNS} for kind, count in sorted(self.counts.items())}
        report = {
            "seed": self.seed, "minutes": round(minutes, 1), "faults": self.faults, "tables": self.tables,
            "kinds": kinds, "failures": self.failures,
        }  # fmt: skip
        file.write_text(json.dumps(report, indent=2) + "\n")


TABLES = 3
"""Of a topic; a lasting fault strikes in the last one."""
FAULTS = 16
"""The most in the life of a table."""
FAULTS_A_RUN = 8
"""The most between two starts of a query."""

console = Console(highlight=False, soft_wrap=True)


class Deck:
    """Faults in random order, each as often as it is given; one that does not suit a query waits for the next."""

    def __init__(self, faults: Sequence[Fault], chance: Random) -> None:
        self._faults, self._chance = faults, chance
        self._waiting: deque[Fault] = deque()

    def draw(self, query: Query) -> Fault:
        """Take the first that suits."""
        while not (suiting := [fault for fault in self._waiting if fault.suits(query)]):
            self._waiting.extend(self._chance.sample(self._faults, len(self._faults)))
        self._waiting.remove(suiting[0])
        return suiting[0]

    def put_back(self, fault: Fault) -> None:
        """It did not happen."""
        self._waiting.appendleft(fault)


class Rounds:
    """One round after the other, with what came of them in `tally`.

    The seed decides on topics, queries, faults and their order; in which moment they meet, the machine does.

    Args:
        kinds: the faults to choose from; without it all.
        alone: only stalls of the storage strike, and only queries that no broker helps: with `remote.fallback=fail`,
            and of archives.
    """

    def __init__(self, rig: Rig, seed: int, kinds: Sequence[str] = (), *, alone: bool = False) -> None:
        self._rig, self._seed = rig, seed
        self.tally = Tally(seed)
        stalls = [each for each in STALLS if not kinds or each.kind in kinds]
        self._alone = Deck(stalls, Random(seed)) if alone else None
        passing, lasting = ([each for each in of if not kinds or each.kind in kinds] for of in (PASSING, LASTING))
        self._passing, self._lasting = Deck(passing, Random(seed)), Deck(lasting, Random(seed))

    def play(self, number: int) -> None:
        """The round of that number."""
        rig, topic = self._rig, f"chaos-{number}"
        rig.chance = Random(f"{self._seed}/{number}")
        fill(rig.stack.broker, topic, rig.chance)
        if self._alone is not None:
            self._play_alone(topic, str(number), self._alone)
            return
        for turn in range(TABLES):
            lasting = turn == TABLES - 1
            query = self._query(topic, f"{number}-{turn}", lasting=lasting)
            query.expected = rig.truth(query)
            deck = self._lasting if lasting else self._passing
            self._land(query, deck, 1 if lasting else FAULTS)
            self.tally.tables += 1
            shutil.rmtree(query.checkpoint, ignore_errors=True)

    def _play_alone(self, topic: str, number: str, deck: Deck) -> None:
        """A live topic, and one of each archive."""
        chance = self._rig.chance
        for archive in ("", *NAMES):
            query = self._query(topic, f"{number}-{archive or 'live'}", lasting=False)
            query.fallback, query.on_cluster = "fail", False
            if archive:
                topics = sorted({partition.topic for partition in consumed(archive, query.isolation)})
                query.archive, query.locator, query.topic = archive, "archive", chance.choice(topics)
            query.expected = self._rig.truth(query)
            self._land(query, deck, FAULTS)
            self.tally.tables += 1
            shutil.rmtree(query.checkpoint, ignore_errors=True)

    def _query(self, topic: str, name: str, *, lasting: bool) -> Query:
        """Before a lasting fault: one that waits for storage as long as it takes, and has one log for what is lost."""
        chance, rig = self._rig.chance, self._rig
        on_cluster = not lasting and chance.random() < 0.25
        return Query(
            topic=topic,
            lane=chance.choice(["direct", "direct", "spark"]),
            isolation=chance.choice([READ_COMMITTED, READ_UNCOMMITTED]),
            locator=chance.choice(["metadata-topic", "broker"]),
            fallback=chance.choice(["broker", "broker", "broker", "fail"]),
            commit=chance.choice(["auto", "spark"]),
            on_cluster=on_cluster,
            fail_on_data_loss=not lasting or chance.random() < 0.5,
            read_timeout_ms=60_000 if lasting else READ_TIMEOUT_MS,
            table=rig.folder / "tables" / name,
            checkpoint=(rig.folder / "checkpoints" if on_cluster else rig.small_disk.folder) / name,
            on_small_disk=rig.small_disk.mounted and not on_cluster,
        )

    def _land(self, query: Query, deck: Deck, faults: int) -> None:
        """Start the query again and again, until all has landed, or a final fault has rightly ended it."""
        rig, struck, wrong_errors = self._rig, 0, 0
        _say(f"{query.table.name} {query.shown()}")
        while True:
            rig.start(query)
            in_this_run = self._strike(query, deck, min(FAULTS_A_RUN, faults - struck))
            struck += len(in_this_run)
            error = rig.answer(query)
            _say(f"{query.table.name} {_shortened(error) or 'landed'}")
            right = self._judge_end(query, in_this_run, error)
            wrong_errors += not right
            ended = not (error or query.grows) or any(fault.final for fault in in_this_run)
            verdict = compare(query.table, query.expected, query.gone, query.said, complete=ended and not error)
            kinds = [fault.kind for fault in in_this_run]
            self.tally.count_records(kinds, verdict)
            if not (right and verdict.well):
                self._fail(f"{query.table.name}, after {', '.join(kinds) or 'no fault'}: {verdict}\n{error[-3000:]}")
            if ended or wrong_errors > 1 or not verdict.well:
                break
            query.grows = query.grows and bool(error)
            query.fail_on_data_loss &= deck is self._passing
        if not wrong_errors and verdict.well:
            shutil.rmtree(query.table, ignore_errors=True)

    def _strike(self, query: Query, deck: Deck, most: int) -> list[Fault]:
        """What struck the query that runs."""
        struck: list[Fault] = []
        while len(struck) < most and not self._rig.driver.answered:
            fault = deck.draw(query)
            if fault.strike(self._rig, query):
                struck.append(fault)
                _say(f"{query.table.name} {fault.kind}")
            else:
                deck.put_back(fault)
        return struck

    def _fail(self, what: str) -> None:
        self.tally.failures.append(what)
        _say(f"NOT WELL: {what}")

    def _judge_end(self, query: Query, struck: Sequence[Fault], error: str) -> bool:
        """Count how a run ended; whether rightly."""
        blamed = [number for number, each in enumerate(struck) if each.explains(query, error)][-1:]
        wrong = [len(struck) - 1] if error and not blamed else []
        for number, fault in enumerate(struck):
            self.tally.count(fault.kind, RIGHT if number in blamed else WRONG if number in wrong else RECOVERED)
        return not error or bool(blamed)


def _say(text: str) -> None:
    console.print(f"{time.strftime('%H:%M:%S')}  {text}", markup=False)


def _shortened(error: str) -> str:
    """The names of our own errors in it, or else its beginning."""
    return ", ".join(dict.fromkeys(re.findall(r"tiered_stream\.errors\.(\w+)", error))) or " ".join(error.split())[:200]
