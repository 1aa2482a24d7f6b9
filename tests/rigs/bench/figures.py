"""What a run of the bench found: rows, and how they are kept and printed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.table import Table

from tests.rigs.tables import table


@dataclass(frozen=True)
class Spread:
    """Of the runs of one figure."""

    min: float
    median: float
    max: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.min:.2f} to {self.max:.2f})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(min(values), statistics.median(values), max(values))


@dataclass(frozen=True)
class Row:
    """How long `subject` took beside `against`, in as many runs, which took turns.

    `ratio` is how many times as long `against` takes, for each record of its own; `floor` is what it has to be, `aim`
    what it shall become, None where nothing was promised. `more` are other figures of `subject`'s runs.
    """

    workload: str
    subject: str
    against: str
    seconds: Spread
    against_seconds: Spread
    ratio: Spread
    floor: float | None
    aim: float | None
    more: Mapping[str, float]
    core_seconds: Mapping[str, float] = field(default_factory=dict)
    """Of `subject`'s runs, by who used them."""

    @property
    def verdict(self) -> str:
        if self.floor is None or self.aim is None:
            return ""
        reached = self.ratio.median
        return "aim" if reached >= self.aim else "floor" if reached >= self.floor else "below"


def printed(rows: Sequence[Row]) -> Table:
    columns = ("workload", "of", "seconds", "beside", "its seconds", "ratio", "floor", "aim", "reached", "more")
    return table(
        "seconds: median (least to most)", columns, map(_cells, rows), texts=("workload", "of", "beside", "more")
    )


def _cells(row: Row) -> Sequence[str]:
    promised = ["" if each is None else f"{each:g}" for each in (row.floor, row.aim)]
    told = {**row.more, **{f"core s {name}": spent for name, spent in row.core_seconds.items()}}
    more = ", ".join(f"{name} {value:,.6g}" for name, value in told.items())
    figures = row.subject, str(row.seconds), row.against, str(row.against_seconds), str(row.ratio)
    return row.workload, *figures, *promised, row.verdict, more


def kept(rows: Sequence[Row], file: Path, machine: Mapping[str, object]) -> None:
    """Write them as JSON; `machine` says where and how busy it was."""
    file.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2))
