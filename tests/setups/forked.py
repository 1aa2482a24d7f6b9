"""The command `tiered-stream` in processes of its own that begin with all imports done, so that many runs take little.

The processes are forks of a server process, which has no threads. A run's output and exit status are a command's own.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PRELOADED = (
    "tests.setups.forked",
    "tiered_stream.cli",
    "tiered_stream.doctor.examine",
    "tiered_stream.export.run_export",
    "tiered_stream.inspection.lag_report",
    "tiered_stream.inspection.tier_contents",
    "tiered_stream.cli.spark_commands",
    "tiered_stream.read.scanner",
)


@dataclass(frozen=True)
class Ran:
    """A command that has ended: its exit status, what it printed, and how many seconds it took."""

    status: int
    output: str
    errors: str
    seconds: float


class ForkedCommands:
    """Runner of commands; `run` may be called by several threads."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(_PRELOADED))

    def run(self, arguments: Sequence[str], folder: Path) -> Ran:
        """Run a command to its end. `folder` gets what it prints."""
        output, errors = folder / f"{arguments[0]}.out", folder / f"{arguments[0]}.err"
        status = folder / f"{arguments[0]}.status"
        files = str(output), str(errors), str(status)
        process = self._context.Process(target=run_command, args=(list(arguments), *files))
        begin = time.monotonic()
        process.start()
        process.join()
        seconds = time.monotonic() - begin
        return Ran(int(status.read_text()), output.read_text(), errors.read_text(), seconds)


def run_command(arguments: Sequence[str], output: str, errors: str, status: str) -> None:
    """Run the command in this process. Standard output, standard error and the exit status go to these files.

    The exit status that multiprocessing gives can be wrong where several threads wait for processes.
    """
    for number, path in ((1, output), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["tiered-stream", *arguments]
    from tiered_stream.cli import app

    code = 1
    try:
        app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
        raise
    finally:
        Path(status).write_text(str(code))
