"""Write the README's table of figures from a run of the bench.

Run it as `python -m tests.docs.readme_figures` after `make bench`. It reads `build/bench.json`, and fails if the file
lacks a figure. It keeps the file as `docs/bench.json`, with which a test compares the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.docs_tables import with_table
from tests.stack.build import ROOT

README = ROOT / "README.md"
REPORT = ROOT / "build" / "bench.json"
KEPT = ROOT / "docs" / "bench.json"
"""Report of the run whose figures the README has."""
MARKER = "figures"
_HEADER = "| Way to use it | `tiered_stream` | Spark's `kafka` source | `kafka` takes |\n|---|---|---|---|\n"
_KAFKA = "kafka, 16 MiB fetches"


@dataclass(frozen=True)
class Figure:
    """Row of the table, and the row of the bench that it shows."""

    way: str
    workload: str
    subject: str
    against: str = _KAFKA


FIGURES = (
    Figure("One changed word, Spark's own Delta sink", "H A in a folder", "Spark lane"),
    Figure("`land` or the job, a table in a folder", "H A in a folder", "direct lane"),
    Figure("`land` or the job, a table in S3", "H A in S3", "direct lane"),
    Figure("`land` or the job, 1 M records of 1 KiB, a table in a folder", "H B in a folder", "direct lane"),
    Figure("`land` or the job, 5 M JSON values of 200 bytes into ten columns", "T-json", "direct lane"),
    Figure("A batch query into Spark's noop sink", "A noop", "tiered_stream"),
    Figure(
        "A whole job by `spark-submit`, 1 M records", "L 1 M records", "our job, cold",
        "a job with kafka, 16 MiB fetches, cold",
    ),
    Figure("A running query, one micro-batch each second", "J steady", "direct lane"),
)  # fmt: skip


def render(report: Mapping[str, Any]) -> str:
    """Return the table as Markdown.

    Raises:
        ValueError: the report lacks a figure.
    """
    found = {(row["workload"], row["subject"], row["against"]): row for row in report["rows"]}
    lines = []
    for figure in FIGURES:
        row = found.get((figure.workload, figure.subject, figure.against))
        if row is None:
            raise ValueError(f"the report has no row {figure.workload!r} of {figure.subject!r} and {figure.against!r}")
        cells = (
            _seconds(row["seconds"]),
            _seconds(row["against_seconds"]),
            f"{row['ratio']['median']:.1f} times as long",
        )
        lines.append(f"| {' | '.join((figure.way, *cells))} |\n")
    return _HEADER + "".join(lines)


def _seconds(spread: Mapping[str, float]) -> str:
    median = spread["median"]
    return f"{median:.2f} s" if median < 1 else f"{median:.1f} s"


def main(report: Path = REPORT) -> None:
    text = report.read_text("utf-8")
    README.write_text(with_table(README.read_text("utf-8"), MARKER, render(json.loads(text))), "utf-8")
    KEPT.write_text(text, "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
