"""What a command that fails in an unforeseen way shows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tiered_stream

PACKAGE = Path(tiered_stream.__file__).parent
FAIL = """
import typer
typer.Typer.__init__.__kwdefaults__["pretty_exceptions_show_locals"] = True  # as versions that are allowed have it
from tiered_stream.cli import app

@app.command()
def fail():
    password = "hunter" + str(2)
    raise RuntimeError("unforeseen")

app(["fail"])
"""


def test_a_traceback_has_no_local_variables_in_it() -> None:
    ended = subprocess.run([sys.executable, "-c", FAIL], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "RuntimeError: unforeseen" in ended.stderr
    assert "hunter2" not in ended.stderr


def test_every_command_line_is_made_by_the_one_function_that_sees_to_it() -> None:
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "jobs").glob("*.py")]
    made = {
        path.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Typer", "typer.run")
    }
    assert made == {"command_app.py"}


BOXES = re.compile("[\u2500-\u257f]")


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "tiered_stream", "plan", "--no-such-option"],
        ["-m", "tiered_stream", "--help"],
        [str(PACKAGE.parent / "jobs/ingest_to_delta.py"), "--no-such-option"],
        [str(PACKAGE.parent / "jobs/replay_from_timestamp.py"), "--help"],
        ["-c", FAIL],
    ],
    ids=["a command's usage", "a command's help", "a job's usage", "a job's help", "an unforeseen failure"],
)
def test_nothing_is_drawn_in_boxes_outside_a_terminal(words: list[str]) -> None:
    """As in the log of a YARN container."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONUTF8": "1"}
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)
    assert ended.stdout + ended.stderr
    assert not BOXES.search(ended.stdout + ended.stderr)
