"""`conf/python.sh`, which finds the Python that `make` builds its environment with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.stack.build import ROOT

OWN = f"python3.{sys.version_info.minor}"


def found(path: Path) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(ROOT / "conf" / "python.sh")]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    return folder


def test_a_launcher_that_does_not_run_is_passed_over(path: Path) -> None:
    for minor in (11, 12, 13, 14):
        program(path / f"python3.{minor}", "echo 'no such version is set' >&2; exit 127")
    program(path / "python3", f'exec "{sys.executable}" "$@"')
    assert os.path.samefile(found(path).stdout.strip(), sys.executable)


def test_a_python_without_venv_is_told_by_one_line(path: Path) -> None:
    program(path / OWN, f'case $2 in *venv*) exit 1;; esac; exec "{sys.executable}" "$@"')
    done = found(path)
    assert done.returncode == 1 and not done.stdout
    assert f"install {OWN}-venv" in done.stderr and done.stderr.count("\n") == 1


def test_no_python_is_told_by_one_line(path: Path) -> None:
    done = found(path)
    assert done.returncode == 1 and "No Python 3.11 to 3.14 on the PATH" in done.stderr and done.stderr.count("\n") == 1
