"""Every figure of README and docs/figures.md is from one run of the bench."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.docs.docs_tables import with_table
from tests.docs.figures import (
    FIGURES_PAGE,
    KEPT,
    PICTURE,
    README,
    SECTIONS,
    WAYS,
    Report,
    draw,
    read,
    tables,
)
from tests.rigs.bench.__main__ import RUNS, workloads
from tests.rigs.bench.figures import Row, Spread

SPREADS = Spread(1.0, 0.126, 2.0), Spread(7.0, 12.34, 9.0), Spread(1.0, 9.96, 3.0)
WRITE = "write it with `python -m tests.docs.figures`"
_MEASURED = re.compile(r"\d (?:s|ms|core seconds|times as long)\b")


@pytest.fixture(scope="module")
def kept() -> Report:
    return read(KEPT.read_text("utf-8"))


def a_report(leave_out: int = 0) -> Report:
    rows = [Row(way.workload, way.subject, way.against, *SPREADS, None, None, {}) for way in WAYS[leave_out:]]
    ran = {"load": [1.25, 2, 3], "cores": 2, "date": "2026-11-27"}
    return Report({"before": ran, "after": ran, "commit": "abc", "runs": 3}, rows)


def test_the_readme_has_at_most_180_lines() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 180


def test_the_pages_have_the_tables_of_the_run_that_is_kept(kept: Report) -> None:
    for (page, name), table in tables(kept).items():
        text = page.read_text("utf-8")
        assert text == with_table(text, name, table), WRITE


def test_the_picture_is_that_of_the_run_that_is_kept(kept: Report) -> None:
    assert PICTURE.read_text("utf-8") == draw(kept), WRITE


def test_the_run_that_is_kept_is_whole(kept: Report) -> None:
    assert (kept.machine["only"], kept.machine["scale"], kept.machine["unchecked"]) == ("", 1.0, False)
    assert kept.machine["runs"] >= RUNS


@pytest.mark.parametrize("page", [README, FIGURES_PAGE], ids=lambda page: page.name)
def test_no_measured_figure_stands_beside_the_tables(page: Path) -> None:
    beside = re.sub(r"<!-- (.+?) -->.*?<!-- /\1 -->", "", page.read_text("utf-8"), flags=re.DOTALL)
    assert not _MEASURED.findall(beside)


def test_each_row_of_a_run_is_in_one_table(kept: Report) -> None:
    shown = [sum(row.workload.startswith(begins) for begins in SECTIONS.values()) for row in kept.rows]
    assert set(shown) == {1}


def test_each_workload_of_the_bench_has_a_table() -> None:
    starts = tuple(start for begins in SECTIONS.values() for start in begins)
    assert all(name.startswith(starts) for name in workloads())


def test_a_report_is_read_as_the_bench_writes_it() -> None:
    report = a_report()
    written = json.dumps({"machine": report.machine, "rows": [asdict(row) for row in report.rows]})
    assert read(written) == report


def test_cells_are_medians() -> None:
    lines = tables(a_report())[README, "figures"].splitlines()
    assert lines[2].endswith(" | 0.13 s | 12.3 s | 10.0 times as long |")


def test_a_figure_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match=f"no row {WAYS[0].workload!r} of {WAYS[0].subject!r}"):
        draw(a_report(leave_out=1))
