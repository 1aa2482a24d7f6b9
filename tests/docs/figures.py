"""Write every figure of README and docs/figures.md, and the picture, from one run of the bench.

Run it as `python -m tests.docs.figures` after `make bench`. It reads `build/bench.json`, and fails if the file lacks a
row that a table or the picture shows. It keeps the file as `docs/bench.json`, with which a test compares the pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.docs_tables import DOCS, with_table
from tests.rigs.bench.figures import Row, Spread
from tests.rigs.stack.build import ROOT
from tests.rigs.tables import markdown
from tests.svg import LEFT, page, text

README, FIGURES_PAGE, PICTURE = ROOT / "README.md", DOCS / "figures.md", DOCS / "figures.svg"
REPORT = ROOT / "build" / "bench.json"
KEPT = DOCS / "bench.json"
"""Report of the run whose figures the pages have."""
_KAFKA = "kafka, 16 MiB fetches"
_WAYS_TITLES = ("Way to use it", "`tiered_stream`", "Spark's `kafka` source", "`kafka` takes")
_ROWS_TITLES = ("Workload", "Measured", "Takes", "Compared with", "Takes", "Times as long", "Core seconds, and more")
_NOT_SECONDS = (", MiB", ", ms", ", core seconds")
"""In the names of workloads whose figures are not seconds."""


@dataclass(frozen=True)
class Way:
    """Row of the README's table, and the row of the bench that it shows."""

    said: str
    workload: str
    subject: str
    against: str = _KAFKA


WAYS = (
    Way("One changed word, Spark's own Delta sink", "W", "one changed word, Delta's own sink"),
    Way(
        "One changed word, batch query for the last quarter of the offsets and four columns", "W",
        "the last quarter by a batch query", "the same by kafka, 16 MiB fetches",
    ),
    Way("`land` or the job, a table in a folder", "W", "direct lane"),
    Way("`land` or the job, a table in S3", "H A in S3", "direct lane"),
    Way("`land` or the job, 1 M records of 1 KiB, a table in a folder", "H B in a folder", "direct lane"),
    Way("`land` or the job, 5 M JSON values of 200 bytes into ten columns", "T-json", "direct lane"),
    Way("Batch query into Spark's noop sink", "A noop", "tiered_stream"),
    Way(
        "A whole job by `spark-submit`, 1 M records", "L 1 M records", "our job, cold",
        "a job with kafka, 16 MiB fetches, cold",
    ),
    Way("A running query, one micro-batch each second", "J steady", "direct lane"),
)  # fmt: skip
SECTIONS = {
    "noop": ("A", "B", "C", "D", "E", "F", "G", "K", "M", "N"),
    "delta": ("H", "W", "T", "U", "O"),
    "plans": ("I", "J", "L", "P", "S"),
    "one core": ("decode", "scan", "export", "store", "verify"),
    "live traffic": ("live",),
}
"""By the markers of the page's tables, what the names of their workloads begin with."""
_DRAWN = (WAYS[0], WAYS[2], WAYS[3], WAYS[6])
_SOURCES = {"tiered_stream": "#0969da", "Spark's kafka source": "#bc4c00"}
_WIDTH, _FIRST, _LAST, _BAR, _GROUP = 760, 20, 640, 20, 92
"""Of the picture: its width, where its longest bar begins and ends, the height of a bar and of a group of bars."""


@dataclass(frozen=True)
class Report:
    """A run of the bench: its rows, and when, where and how they were measured."""

    machine: Mapping[str, Any]
    rows: Sequence[Row]

    def row(self, way: Way) -> Row:
        """Return the row that a way shows.

        Raises:
            ValueError: the run has no such row.
        """
        for row in self.rows:
            if (row.workload, row.subject, row.against) == (way.workload, way.subject, way.against):
                return row
        raise ValueError(f"the run has no row {way.workload!r} of {way.subject!r} and {way.against!r}")


def read(report: str) -> Report:
    """Read the bench's JSON."""
    found = json.loads(report)
    spreads = ("seconds", "against_seconds", "ratio")
    rows = [Row(**{**row, **{name: Spread(**row[name]) for name in spreads}}) for row in found["rows"]]
    return Report(found["machine"], rows)


def tables(report: Report) -> dict[tuple[Path, str], str]:
    """Return the tables as Markdown, by the page and the name of the markers between which the table stands."""
    ways = _ways(report)
    return {
        (README, "figures"): ways,
        (FIGURES_PAGE, "run"): _run(report.machine),
        (FIGURES_PAGE, "ways"): ways,
        **{(FIGURES_PAGE, name): _section(report.rows, begins) for name, begins in SECTIONS.items()},
    }


def _ways(report: Report) -> str:
    lines = []
    for way in WAYS:
        row = report.row(way)
        takes = f"{row.ratio.median:.1f} times as long"
        lines.append((way.said, f"{_median(row.seconds)} s", f"{_median(row.against_seconds)} s", takes))
    return markdown(_WAYS_TITLES, lines)


def _run(machine: Mapping[str, Any]) -> str:
    before, after = (machine[when]["load"][0] for when in ("before", "after"))
    return (
        f"One run of `make bench` on {machine['before']['date']}, of commit {machine['commit']},"
        f" on {machine['before']['cores']} cores with load averages of {before:.1f} before and {after:.1f} after."
        f" Each side has at most {machine['runs']} runs. Rows are medians, with the least and the most in"
        " parentheses.\n"
    )


def _section(rows: Sequence[Row], begins: tuple[str, ...]) -> str:
    return markdown(_ROWS_TITLES, (_cells(row) for row in rows if row.workload.startswith(begins)))


def _cells(row: Row) -> Sequence[str]:
    unit = "" if any(each in row.workload for each in _NOT_SECONDS) else " s"
    spent = ", ".join(f"{who} {seconds:g}" for who, seconds in row.core_seconds.items())
    more = [f"{name[:1].upper()}{name[1:]} {_number(value)}" for name, value in row.more.items()]
    return (
        row.workload, row.subject, _spread(row.seconds, unit), row.against, _spread(row.against_seconds, unit),
        _spread(row.ratio), ". ".join(filter(None, (spent, *more))),
    )  # fmt: skip


def _spread(spread: Spread, unit: str = "") -> str:
    least, median, most = _number(spread.min), _number(spread.median), _number(spread.max)
    return f"{median}{unit}" if least == most else f"{median}{unit} ({least} to {most})"


def _median(spread: Spread) -> str:
    return _number(spread.median)


def _number(value: float) -> str:
    """Two digits behind the point below 1, one below 100, and none above."""
    return f"{value:,.{2 if abs(value) < 1 else 1 if abs(value) < 100 else 0}f}"


def draw(report: Report) -> str:
    """Draw a bar as long as the quickest run, and paler up to the slowest."""
    groups = [(way.said.replace("`", ""), report.row(way)) for way in _DRAWN]
    scale = (_LAST - _FIRST) / max(max(row.seconds.max, row.against_seconds.max) for _, row in groups)
    parts = []
    for number, (name, colour) in enumerate(_SOURCES.items()):
        parts.append(f'<rect x="{LEFT + 160 * number}" y="42" width="12" height="12" fill="{colour}"/>')
        parts.append(text(LEFT + 160 * number + 20, 53, name))
    for number, (said, row) in enumerate(groups):
        top = 72 + _GROUP * number
        parts.append(text(_FIRST, top + 14, said))
        for line, (spread, colour) in enumerate(
            zip((row.seconds, row.against_seconds), _SOURCES.values(), strict=True)
        ):
            y = top + 22 + (_BAR + 6) * line
            for seconds, opacity in ((spread.max, 0.35), (spread.min, 1)):
                parts.append(
                    f'<rect x="{_FIRST}" y="{y}" width="{scale * seconds:.1f}" height="{_BAR}" fill="{colour}"'
                    f' fill-opacity="{opacity}"/>'
                )
            parts.append(text(_FIRST + scale * spread.max + 8, y + 15, f"{_median(spread)} s", "note"))
    return page(_WIDTH, 84 + _GROUP * len(groups), "10 M records of 100 bytes, two cores: seconds", parts)


def main(path: Path = REPORT) -> None:
    report = path.read_text("utf-8")
    for (to, name), table in tables(read(report)).items():
        to.write_text(with_table(to.read_text("utf-8"), name, table), "utf-8")
    PICTURE.write_text(draw(read(report)), "utf-8")
    KEPT.write_text(report, "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
