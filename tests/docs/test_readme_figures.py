"""The README's table of figures can be filled from a report of the bench."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.bench.figures import Row, Spread
from tests.docs.readme_figures import FIGURES, README, render

SPREADS = Spread(1.0, 0.126, 2.0), Spread(7.0, 12.34, 9.0), Spread(1.0, 9.96, 3.0)


def report(leave_out: int = 0) -> dict[str, object]:
    rows = [Row(each.workload, each.subject, each.against, *SPREADS, None, None, {}) for each in FIGURES[leave_out:]]
    return {"rows": [asdict(row) for row in rows]}


def test_each_row_of_the_readme_has_a_workload_of_the_bench() -> None:
    text = README.read_text("utf-8")
    table = text.partition("<!-- figures -->\n")[2].partition("<!-- /figures -->")[0]
    ways = [line.split(" | ")[0] for line in table.splitlines()]
    assert ways == [line.split(" | ")[0] for line in render(report()).splitlines()]


def test_cells_are_medians() -> None:
    assert render(report()).splitlines()[2].endswith(" | 0.13 s | 12.3 s | 10.0 times as long |")


def test_a_figure_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match=FIGURES[0].workload):
        render(report(leave_out=1))
