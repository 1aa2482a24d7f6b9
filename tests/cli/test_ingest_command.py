"""`tiered-stream ingest`, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_spark_commands import command, settings_file, start
from tests.delta.archive import LONG, everything, landed


@pytest.mark.stack
def test_topics_are_landed_without_spark_submit(tmp_path: Path) -> None:
    words = ["--settings", settings_file(tmp_path), "--table", str(tmp_path / "table")]
    process = start(command(*words, "--checkpoint", str(tmp_path / "checkpoint"), name="ingest"))
    shown, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "direct lane" in shown
    assert landed(tmp_path / "table").num_rows == everything(LONG).num_rows
