"""The installed command `tiered-stream`, as users start it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.setups.forked import Ran
from tests.stack.spark import spark_environment

_PROGRAM = Path(sys.executable).with_name("tiered-stream")


def run_installed(arguments: Sequence[str], folder: Path) -> Ran:
    """Run the command with these arguments in the folder."""
    begin = time.monotonic()
    ended = subprocess.run(
        [str(_PROGRAM), *arguments], cwd=folder, capture_output=True, text=True, check=False, env=spark_environment()
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr, time.monotonic() - begin)
