"""The driver is killed, with all its processes, and another goes on. `make chaos` does so at every point."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.delta.archive import ODD, everything, landed
from tests.delta.driver import AFTER_COMMIT, Run

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def test_a_driver_killed_between_the_tables_commit_and_sparks_lands_every_record_once(tmp_path: Path) -> None:
    table, checkpoint, log = tmp_path / "table", tmp_path / "checkpoint", tmp_path / "log"
    run = Run(str(table), str(checkpoint), ODD, limit=2500)
    assert replace(run, point=AFTER_COMMIT).execute(log) == -signal.SIGKILL, log.read_text()
    assert DeltaTable(table).version() == 1 and not list((checkpoint / "commits").glob("[0-9]*"))
    assert run.execute(log) == 0, log.read_text()
    assert landed(table).equals(everything(ODD))
    assert len(list(table.glob("*.parquet"))) == len(DeltaTable(table).file_uris())  # nothing was written twice
