"""A session of Spark Connect, with a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything, landed
from tests.rigs.stack.processes import LONG
from tests.rigs.stack.spark import ROOT, spark_environment


@pytest.mark.starts_spark
@pytest.mark.slow
def test_a_client_reads_lands_and_verifies_and_is_refused_by_name_what_it_cannot_do(tmp_path: Path) -> None:
    check_client(tmp_path)


def check_client(folder: Path, *server: str) -> None:
    """Of the server at an address, or of one that Spark starts for it with this Python."""
    command = [sys.executable, "-m", "tests.delta.connect_driver", str(folder), *server]
    run = subprocess.run(
        command, cwd=ROOT, env=spark_environment(), capture_output=True, text=True, timeout=LONG, check=False
    )
    assert run.returncode == 0, run.stderr[-8000:]
    found = json.loads((folder / "found.json").read_text())
    assert found["read"] == everything(ODD).num_rows and found["equal"]
    assert landed(folder / "table").equals(everything(ODD))
    assert f"cannot write to {folder}/refused: with Spark Connect" in found["direct"]
    assert "Spark Connect" in found["replay"]
    assert not (folder / "refused").exists()
