"""Programs that each run in a fork of one Python that has done its imports, so that many programs take one start.

The Python that forks has one thread. A fork's output and exit status are those of a Python of its own, because a fork
ends as the interpreter ends: it flushes standard output, and reports what cannot be flushed.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_FORK = """
import json as _json, os as _os, sys as _sys
_requests, _statuses, _null = _os.fdopen(_os.dup(0)), _os.dup(1), _os.open(_os.devnull, _os.O_RDWR)
for _number in (0, 1):
    _os.dup2(_null, _number)
for _line in _requests:
    _program, _arguments, _files = _json.loads(_line)
    if _fork := _os.fork():
        _os.write(_statuses, b"%d\\n" % _os.waitstatus_to_exitcode(_os.waitpid(_fork, 0)[1]))
        continue
    _os.close(_statuses)
    for _number, _file in enumerate(_files, 1):
        if _file is None:  # a pipe that nobody reads
            _reads, _descriptor = _os.pipe()
            _os.close(_reads)
        else:
            _descriptor = _os.open(_file, _os.O_WRONLY | _os.O_TRUNC)
        _os.dup2(_descriptor, _number)
        _os.close(_descriptor)
    _sys.argv = ["-c", *_arguments]
    break
else:
    _sys.exit()
exec(compile(_program, "<string>", "exec"))
"""
IMPORTS = """
import tiered_stream.cli, tiered_stream.doctor.examine, tiered_stream.inspection.lag_report
import tiered_stream.inspection.tier_contents, tiered_stream.read.scanner
"""
"""What the commands that read import when they run."""
COMMAND = "from tiered_stream.cli import app; app(prog_name='tiered-stream')"


class ForkingPython:
    """A Python that has run `preamble`, with these arguments, and forks for each program."""

    def __init__(self, preamble: str, *arguments: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forking-")
        self._files = [str(Path(self._folder.name) / name) for name in ("output", "errors")]
        for file in self._files:
            Path(file).touch()
        # PYTHONUNBUFFERED would hide what stays in buffers.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", preamble + _FORK, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**environment, "PYTHONUTF8": "1"}, bufsize=0,
        )  # fmt: skip

    def run(self, program: str, *arguments: str, unread: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. If `unread` is true, its standard output is a pipe that nobody reads."""
        assert self._process.stdin and self._process.stdout
        output, errors = self._files
        request = [program, arguments, [None if unread else output, errors]]
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        status = int(self._process.stdout.readline())
        said = ["" if unread else Path(output).read_text("utf-8"), Path(errors).read_text("utf-8")]
        return subprocess.CompletedProcess(["-c", *arguments], status, *said)

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


@cache
def forking_python(preamble: str, *arguments: str) -> ForkingPython:
    """The one Python of this process that has run this preamble; it ends with this process."""
    started = ForkingPython(preamble, *arguments)
    atexit.register(started.close)
    return started


def run_command(*arguments: str, unread: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the command `tiered-stream` to its end."""
    return forking_python(IMPORTS).run(COMMAND, *arguments, unread=unread)
