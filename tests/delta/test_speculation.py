"""Spark runs a slow task twice at the same time, on real executors, and both attempts write files."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.delta.archive import ODD, everything, landed
from tests.delta.driver import Run
from tests.rigs.stack.spark_cluster import SparkCluster

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def test_speculative_duplicates_of_tasks_land_every_record_once(tmp_path: Path) -> None:
    table, log, marks = tmp_path / "table", tmp_path / "log", tmp_path / "marks"
    marks.mkdir()
    with SparkCluster(tmp_path / "cluster") as cluster:
        speculation = (cluster.master, str(marks))
        run = Run(str(table), str(tmp_path / "checkpoint"), ODD, limit=100_000, speculation=speculation)
        assert run.execute(log) == 0, log.read_text()[-4000:]
    assert (marks / "0-0").exists() and (marks / "0-1").exists(), "the task ran once only"
    assert landed(table).equals(everything(ODD))
    assert DeltaTable(table).version() == 1
