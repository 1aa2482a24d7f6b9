"""What a command that fails in an unforeseen way shows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import tiered_stream
from tests.forking_python import IMPORTS, forking_python, run_command

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


@cache
def failed() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", FAIL], capture_output=True, text=True)


def test_a_traceback_has_no_local_variables_in_it() -> None:
    ended = failed()
    assert ended.returncode == 1
    assert "RuntimeError: unforeseen" in ended.stderr
    assert "hunter2" not in ended.stderr


def test_every_command_line_is_made_by_the_one_function_that_sees_to_it() -> None:
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "jobs").glob("*.py")]
    made = {
        path.name
        for path in files
        if "typer" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Typer", "typer.run")
    }
    assert made == {"command_line.py"}


def run_job(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = f"import runpy; runpy.run_path({str(PACKAGE.parent / 'jobs' / name)!r} + '.py', run_name='__main__')"
    return forking_python(IMPORTS).run(program, *arguments)


BOXES = re.compile("[\u2500-\u257f]")


@pytest.mark.parametrize(
    "run",
    [
        lambda: run_command("plan", "--no-such-option"),
        lambda: run_command("--help"),
        lambda: run_job("ingest_to_delta", "--no-such-option"),
        lambda: run_job("replay_from_timestamp", "--help"),
        failed,
    ],
    ids=["a command's usage", "a command's help", "a job's usage", "a job's help", "an unforeseen failure"],
)
def test_nothing_is_drawn_in_boxes_outside_a_terminal(run: Callable[[], subprocess.CompletedProcess[str]]) -> None:
    """As in the log of a YARN container."""
    ended = run()
    assert ended.stdout + ended.stderr
    assert not BOXES.search(ended.stdout + ended.stderr)
