from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.secrets.canaries import Canaries

REPORT_TOKENS = "report-tokens"
LOG_EVERYTHING = """
import logging, os
logging.basicConfig(level=logging.DEBUG, filename=os.path.join({folder!r}, f"python-{{os.getpid()}}.log"))
# What py4j logs at this level are the arguments of each call that the user's own program makes.
logging.getLogger("py4j").setLevel(logging.INFO)
"""

NOTE_REPORT_TOKENS = """
import os, sys
random_bytes = os.urandom
def noted(size):
    made = random_bytes(size)
    if sys._getframe(1).f_globals.get("__name__") == "tiered_stream.observe.metrics_receiver":
        with open({file!r}, "a") as file:
            file.write(made.hex() + "\\n")
    return made
os.urandom = noted
"""


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder for all output. Every Python process that is started from now on logs everything there.

    The tokens of reports go into a file next to the folder: `report_tokens`.
    """
    folder, site = tmp_path / "written", tmp_path / "site"
    (folder / "events").mkdir(parents=True)
    site.mkdir()
    noting = NOTE_REPORT_TOKENS.format(file=str(tmp_path / REPORT_TOKENS))
    (site / "sitecustomize.py").write_text(LOG_EVERYTHING.format(folder=str(folder)) + noting)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return folder


@pytest.fixture
def report_tokens(tmp_path: Path, written: Path) -> Callable[[], set[str]]:
    """Return the tokens that the processes have made so far: in hexadecimal, as Python shows bytes, and in base64."""

    def found() -> set[str]:
        tokens = map(bytes.fromhex, (tmp_path / REPORT_TOKENS).read_text().split())
        return {text for each in tokens for text in (each.hex(), repr(each)[2:-1], base64.b64encode(each).decode())}

    return found
