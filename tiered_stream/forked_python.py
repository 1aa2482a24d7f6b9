"""The Python that Spark runs on the driver: a program that has a fork server lend it a process with all imports done.

The server (`fork_server.py`) lives as long as the driver. Its socket is in a folder that only the user can look into.
The program is a script that runs `fork_client.py`. Whatever of this is missing, stuck or killed, Spark gets a Python
that imports for itself.
"""

from __future__ import annotations

import atexit
import logging
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
_TRIAL = "--trial"
_MFD_EXEC = 0x10
"""Of linux/memfd.h: the file may be run, whatever vm.memfd_noexec says of others."""

log = logging.getLogger(__name__)


class ServedPython:
    """A program that takes a Python's arguments, and its server, for Pythons that start with such variables.

    The program is in memory (memfd_create(2)), as Spark runs it by its path for as long as the driver lives, and a file
    might be cleaned away.
    """

    def __init__(self, environment: Mapping[str, str], *, tasks: bool) -> None:
        """Raises OSError: there is no place for the socket or for a program, or no process."""
        self._started_with = dict(environment)
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="tiered-stream-"))
        self._descriptors: list[int] = []
        try:
            self.program = self._write_program()
            self._process = self._start({**os.environ, **environment}, _TASKS if tasks else ())
        except BaseException:
            shutil.rmtree(self._folder)
            self._remove_program()
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
        client, python = map(shlex.quote, (str(_CLIENT), sys.executable))
        asks = shlex.join(["-I", "-S", str(_CLIENT), str(self._address), str(self._in_memory("told")), sys.executable])
        lines = [
            "#!/bin/sh",
            f'[ "$1" != {_TRIAL} ] || exit 0',
            f'[ -f {client} ] || exec {python} "$@"',
            f'exec {python} {asks} "$@"',
        ]
        text = "\n".join([*lines, ""])
        program = self._in_memory("python", text.encode())
        if subprocess.run([str(program), _TRIAL], check=False).returncode:
            raise PermissionError("programs in memory may not be run")
        return program

    def _in_memory(self, name: str, text: bytes = b"") -> Path:
        """Make a file in memory, which every process of the user finds at this path until the driver ends."""
        try:
            descriptor = os.memfd_create(f"tiered-stream-{name}", os.MFD_CLOEXEC | _MFD_EXEC)
        except OSError:  # before Linux 6.3 all may be run
            descriptor = os.memfd_create(f"tiered-stream-{name}", os.MFD_CLOEXEC)
        self._descriptors.append(descriptor)
        os.write(descriptor, text)
        return Path(f"/proc/{os.getpid()}/fd/{descriptor}")

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

    @property
    def is_cut_off(self) -> bool:
        """Whether the server runs, but its socket was taken away."""
        return self.runs and not self._address.exists()

    def stop(self) -> None:
        """End the server. Processes that it forked go on, and its program starts a Python without it."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """End the server, and remove the program."""
        if self._owner == os.getpid():
            self.stop()
            self._remove_program()

    def _remove_program(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


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
        if _served is not None and _served.is_for(environment) and _served.is_cut_off:
            log.warning("somebody has removed the fork server's socket: another server is started")
            _served.stop()
            _served = None
        if _served is None or not _served.is_for(environment):
            try:
                _served = ServedPython(environment, tasks=tasks)
            except OSError:
                return None
        return str(_served.program) if _served.runs else None  # one that has ended would end again
