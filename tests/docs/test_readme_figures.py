"""The README's table of figures can be filled from a report of the bench."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tests.bench.figures import Row, Spread
from tests.docs.readme_figures import FIGURES, KEPT, README, render

SPREADS = Spread(1.0, 0.126, 2.0), Spread(7.0, 12.34, 9.0), Spread(1.0, 9.96, 3.0)


def report(leave_out: int = 0) -> dict[str, object]:
    rows = [Row(each.workload, each.subject, each.against, *SPREADS, None, None, {}) for each in FIGURES[leave_out:]]
    return {"rows": [asdict(row) for row in rows]}


def shown() -> str:
    """Return the README's table."""
    return README.read_text("utf-8").partition("<!-- figures -->\n")[2].partition("<!-- /figures -->")[0]


def test_the_readme_has_at_most_180_lines() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 180


def test_the_figures_are_from_the_run_that_is_kept() -> None:
    if not KEPT.exists():
        pytest.skip("no run of the bench is kept yet")
    assert shown() == render(json.loads(KEPT.read_text("utf-8"))), "write them with `tests.docs.readme_figures`"


def test_each_row_of_the_readme_has_a_workload_of_the_bench() -> None:
    ways = [line.split(" | ")[0] for line in shown().splitlines()]
    assert ways == [line.split(" | ")[0] for line in render(report()).splitlines()]


def test_cells_are_medians() -> None:
    assert render(report()).splitlines()[2].endswith(" | 0.13 s | 12.3 s | 10.0 times as long |")


def test_a_figure_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match=FIGURES[0].workload):
        render(report(leave_out=1))
