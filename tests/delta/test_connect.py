"""A session of Spark Connect, with a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything, landed
from tests.delta.driver import found_by


@pytest.mark.starts_spark
@pytest.mark.slow
def test_a_client_reads_lands_and_verifies_and_is_refused_by_name_what_it_cannot_do(tmp_path: Path) -> None:
    check_client(tmp_path)


def check_client(folder: Path, *server: str) -> None:
    """Of the server at an address, or of one that Spark starts for it with this Python."""
    found = found_by("tests.delta.connect_driver", folder, *server)
    assert found["read"] == everything(ODD).num_rows and found["equal"]
    assert landed(folder / "table").equals(everything(ODD))
    assert f"cannot write to {folder}/refused: with Spark Connect" in found["direct"]
    assert "Spark Connect" in found["replay"]
    assert not (folder / "refused").exists()
