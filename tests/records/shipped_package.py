"""Copies of the package in folders of their own, as `--py-files` and packed environments bring them to a machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tiered_stream

ROOT = Path(tiered_stream.__file__).parent.parent


def ship(folder: Path) -> Path:
    """A copy of the package's code in `folder`, without anything that was compiled."""
    ignored = shutil.ignore_patterns("__pycache__", "kernel_cache")
    shutil.copytree(ROOT / "tiered_stream", folder / "tiered_stream", ignore=ignored)
    return folder


def run(shipped: Path, code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python process that imports the package from `shipped`."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    paths = os.pathsep.join((str(shipped), str(ROOT)))  # the second for `tests`
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        cwd=shipped,
        capture_output=True,
        text=True,
        check=False,
    )


def compiled_files(folder: Path) -> dict[Path, int]:
    """numba's files anywhere in `folder`, with the time (ns) at which each was written."""
    return {
        path.relative_to(folder): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.suffix in (".nbi", ".nbc")
    }
