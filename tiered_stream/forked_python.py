"""The Python that Spark runs on the driver: a program that has a fork server lend it a process with all imports done.

The server (`fork_server.py`) lives as long as the driver. Its socket and the program (`fork_client.py`, by a script
that names the socket) are in a folder that only the user can look into.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

_CLIENT = Path(__file__).with_name("fork_client.py")
_TASKS = ("tasks",)


class ServedPython:
    """A program that takes a Python's arguments, and its server, for Pythons that start with such variables."""

    def __init__(self, environment: Mapping[str, str], *, tasks: bool) -> None:
        """Raises OSError: there is no place for the socket or for a program, or no process."""
        self._started_with = dict(environment)
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="tiered-stream-"))
        try:
            self.program = self._write_program()
            self._process = self._start({**os.environ, **environment}, _TASKS if tasks else ())
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        atexit.register(self.close)

    def _start(self, environment: Mapping[str, str], more: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._address))
            listener.listen()
            return subprocess.Popen(
                [sys.executable, "-m", "tiered_stream.fork_server", str(listener.fileno()), str(self._folder), *more],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], env=environment,
                process_group=0,  # Ctrl-C is for the driver
            )  # fmt: skip

    def _write_program(self) -> Path:
        program = self._folder / "python"
        words = shlex.join([sys.executable, "-I", "-S", str(_CLIENT), str(self._address), sys.executable])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o700)
        if not os.access(program, os.X_OK):
            raise PermissionError(f"programs may not be run from {self._folder}")
        return program

    @property
    def _address(self) -> Path:
        return self._folder / "socket"

    def is_for(self, environment: Mapping[str, str]) -> bool:
        """Whether it is this process's, and starts Pythons as they are to start."""
        return self._owner == os.getpid() and self._started_with == environment

    @property
    def runs(self) -> bool:
        """Whether the server is there; it ends by itself where what was imported cannot be forked."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the server; processes that it forked go on."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
            shutil.rmtree(self._folder, ignore_errors=True)


_served: ServedPython | None = None
_starting = Lock()


def forked_python(environment: Mapping[str, str], *, tasks: bool) -> str | None:
    """A program that starts what this process's Python would, sooner; None: there can be none here.

    Args:
        environment: the variables with which it is going to be started, beside those of this process.
        tasks: whether it runs tasks, too.
    """
    global _served
    with _starting:
        if _served is None or not _served.is_for(environment):
            try:
                _served = ServedPython(environment, tasks=tasks)
            except OSError:
                return None
        return str(_served.program) if _served.runs else None  # one that has ended would end again
