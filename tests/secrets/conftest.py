from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.secrets.canaries import Canaries

LOG_EVERYTHING = """
import logging, os
logging.basicConfig(level=logging.DEBUG, filename=os.path.join({folder!r}, f"python-{{os.getpid()}}.log"))
# What py4j logs at this level are the arguments of each call that the user's own program makes.
logging.getLogger("py4j").setLevel(logging.INFO)
"""


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all is written to; every Python process that is started from now on logs everything there."""
    folder, site = tmp_path / "written", tmp_path / "site"
    (folder / "events").mkdir(parents=True)
    site.mkdir()
    (site / "sitecustomize.py").write_text(LOG_EVERYTHING.format(folder=str(folder)))
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return folder
