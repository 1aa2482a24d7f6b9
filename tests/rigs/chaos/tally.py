"""What came of the faults: how often each kind struck, and how the queries and their tables took it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from tests.rigs.chaos.checking import Verdict
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
