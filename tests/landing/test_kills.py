"""The driver dies at every point of a batch, one after the other on one checkpoint; no record is lost or doubled."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.landing.archive import ODD, everything, landed
from tests.landing.driver import POINTS, Run

pytestmark = pytest.mark.stack


def test_a_driver_that_is_killed_at_any_point_lands_every_record_once(tmp_path: Path) -> None:
    table, log = tmp_path / "table", tmp_path / "log"
    run = Run(str(table), str(tmp_path / "checkpoint"), ODD, limit=800)
    for point in POINTS:
        assert replace(run, point=point).execute(log) == -signal.SIGKILL, log.read_text()
    assert run.execute(log) == 0, log.read_text()
    assert landed(table).equals(everything(ODD))
    # Between tasks and commit, and perhaps during the commit: files that nobody refers to.
    assert len(list(table.glob("*.parquet"))) > len(_files(table))


def _files(table: Path) -> list[str]:
    from deltalake import DeltaTable

    return DeltaTable(table).file_uris()
