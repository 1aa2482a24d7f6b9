"""Report on the statistics in a table's log, by which readers skip files (Delta protocol: "Per-file Statistics")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WrongStatistic:
    """Statistic of a file that is wrong: a reader that trusts it loses rows.

    `name` is `numRecords`, `nullCount`, `minValues` or `maxValues`. `column` is '' for `numRecords`. `log` and `rows`
    are the values in the table's log and in the file's rows, as texts.
    """

    file: str
    column: str
    name: str
    log: str
    rows: str

    def __str__(self) -> str:
        column = f"column {self.column}: " if self.column else ""
        return f"file {self.file}: {column}{self.name} is {self.log} in the table's log, and {self.rows} in the rows"


@dataclass(frozen=True, slots=True)
class ComparedStatistics:
    """Result of comparing statistics with rows: numbers of files, and the statistics that are wrong.

    `skipped` is the number of files that were not compared. `wrong` is the number of wrong statistics, and `named` are
    some of them.
    """

    files: int = 0
    skipped: int = 0
    wrong: int = 0
    named: tuple[WrongStatistic, ...] = ()
    repaired: bool = False

    def found(self) -> Iterator[str]:
        """Yield a line for each wrong statistic that is named, and one for the others."""
        yield from map(str, self.named)
        if self.wrong > len(self.named):
            yield f"{self.wrong - len(self.named):,} more statistics in the table's log are wrong"
        if self.wrong:
            yield "readers that filter by these columns lose rows: stop the table's queries, and verify with --repair"

    def notes(self) -> Iterator[str]:
        """Yield a line about files whose statistics were not compared, and one about a repair."""
        if self.skipped:
            yield f"statistics of {self.skipped:,} files were not compared with their rows"
        if self.repaired:
            yield "statistics in the table's log were wrong, and were computed again for all files"
