"""The examples of the page run as they stand, on a golden archive."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import polars
import pyarrow.parquet as pq
import pytest

from tests.archives import COMMITTED, PLAIN, archive_options, consumed
from tests.docs.docs_tables import DOCS
from tests.rigs.stack.rows import Row


@cache
def expected() -> dict[tuple[str, int], list[Row]]:
    return {(at.topic, at.partition): rows for at, rows in consumed(PLAIN, COMMITTED).items() if rows}


def counted() -> list[tuple[str, int, int, int]]:
    return sorted((*at, len(rows), rows[-1].offset) for at, rows in expected().items())


def total() -> int:
    return sum(map(len, expected().values()))


def run(heading: str) -> dict[str, Any]:
    """The names that the section's examples leave; `options` are the archive's, not the page's."""
    page = (DOCS / "without-spark.md").read_text("utf-8")
    first = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    assert first
    exec(first[1], names)
    names["options"] = archive_options(PLAIN)
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, names)
    return names


def test_batches_come_one_after_the_other() -> None:
    found = run("One batch after the other")
    assert found["records"] == total()
    assert found["last"] == {at: rows[-1].offset for at, rows in expected().items()}


def test_polars_takes_them() -> None:
    partitions = run("polars")["partitions"]
    assert isinstance(partitions, polars.DataFrame)
    assert partitions.rows() == counted()


def test_pandas_takes_them() -> None:
    found = run("pandas")
    assert isinstance(found["per_hour"], pd.Series)
    assert found["per_hour"].sum() == len(found["orders"]) == total()


def test_duckdb_takes_them_and_writes_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("DuckDB")["partitions"] == counted()
    assert pq.read_metadata("orders.parquet").num_rows == total()
