"""Program that Spark runs in place of Python on the driver: it asks a fork server for a process with all imports done.

The server (`fork_server.py`) lives as long as the driver. Its socket is in a folder that only the user can read. The
program is a shell script that runs `fork_client.py`. If the client or the server is missing or does not respond, the
program runs a normal Python instead, which does its own imports.
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
from contextlib import suppress
from pathlib import Path
from threading import Lock

_SERVER = "tiered_stream.pythons.fork_server"
_CLIENT = Path(__file__).with_name("fork_client.py")
_TASKS = ("tasks",)
_TRIAL = "--trial"
_SECONDS_TO_END = 2.0
"""Maximum time from the removal of the socket by a server that ends, to the end of the server's process."""
_MFD_EXEC = 0x10
"""Flag MFD_EXEC of linux/memfd.h: the file in memory may be executed, whatever vm.memfd_noexec is."""

log = logging.getLogger(__name__)


class ServedPython:
    """Fork server for one set of environment variables, and the `program` that Spark runs in place of Python.

    The program takes the same arguments as Python. It is a file in memory (memfd_create(2)), because Spark runs it by
    its path for as long as the driver lives. A cleanup of temporary files might remove a file on disk.
    """

    def __init__(self, environment: Mapping[str, str], *, tasks: bool) -> None:
        """Start the fork server with `environment` added to this process's variables.

        If `tasks` is true, the server also imports the modules that tasks need.

        Raises:
            OSError: the socket, the program or the server's process cannot be created.
        """
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

    def _start(self, environment: Mapping[str, str], options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._address))
            listener.listen()
            return subprocess.Popen(
                [sys.executable, "-m", _SERVER, str(listener.fileno()), str(self._folder), *options],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], env=environment,
                process_group=0,  # Ctrl-C must reach only the driver
            )  # fmt: skip

    def _write_program(self) -> Path:
        client, python = map(shlex.quote, (str(_CLIENT), sys.executable))
        client_arguments = shlex.join(
            ["-I", "-S", str(_CLIENT), str(self._address), str(self._in_memory("warned")), sys.executable]
        )
        lines = [
            "#!/bin/sh",
            f'[ "$1" != {_TRIAL} ] || exit 0',
            f'[ -f {client} ] || exec {python} "$@"',
            f'exec {python} {client_arguments} "$@"',
        ]
        text = "\n".join([*lines, ""])
        program = self._in_memory("python", text.encode())
        if subprocess.run([str(program), _TRIAL], check=False).returncode:
            raise PermissionError("this system does not run programs in memory")
        return program

    def _in_memory(self, name: str, text: bytes = b"") -> Path:
        """Create a file with this text in memory, and return a path by which processes of the same user open it.

        The path exists until `close`, or until the driver ends.
        """
        try:
            descriptor = os.memfd_create(f"tiered-stream-{name}", os.MFD_CLOEXEC | _MFD_EXEC)
        except OSError:  # Linux before 6.3 has no such flag: all files in memory may be executed
            descriptor = os.memfd_create(f"tiered-stream-{name}", os.MFD_CLOEXEC)
        self._descriptors.append(descriptor)
        os.write(descriptor, text)
        return Path(f"/proc/{os.getpid()}/fd/{descriptor}")

    @property
    def _address(self) -> Path:
        return self._folder / "socket"

    def is_for(self, environment: Mapping[str, str]) -> bool:
        """Return true if this process has started the server, with exactly these additional environment variables."""
        return self._owner == os.getpid() and self._started_with == environment

    @property
    def runs(self) -> bool:
        """True if the server's process runs.

        The server ends by itself if its imports have started threads, because a process with threads cannot be forked
        safely.
        """
        return self._process.poll() is None

    @property
    def is_cut_off(self) -> bool:
        """True if the server runs, but somebody else has removed its socket, so no client can reach it.

        A server that ends removes the socket itself. So this property waits at most 2 s for the end of a server without
        a socket.
        """
        if self._address.exists():
            return False
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_SECONDS_TO_END)
        return self.runs

    def stop(self) -> None:
        """Kill the server and remove its socket; a fork of the driver does nothing here.

        The server's forks keep running, and `program` then starts normal Pythons.
        """
        if self._owner != os.getpid():
            return
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Kill the server, and remove its socket and the program; a fork of the driver does nothing here.

        Python processes that the server has forked keep running.
        """
        if self._owner == os.getpid():
            self.stop()
            self._remove_program()

    def _remove_program(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


_served: ServedPython | None = None
_starting = Lock()


def forked_python(environment: Mapping[str, str], *, tasks: bool) -> str | None:
    """Return the path of a program that Spark can run in place of Python, and that starts with its imports done.

    The program's fork server is started if it does not run yet with this environment. There is one server at a time: a
    server with another environment is stopped.

    Args:
        environment: variables with which Spark starts the program, in addition to the variables of this process.
        tasks: true if the program runs tasks too; it has an effect only if this call starts the server.

    Returns:
        The path, or None if the server cannot be started, or has ended.
    """
    global _served
    with _starting:
        if _served is not None and (not _served.is_for(environment) or _served.is_cut_off):
            if _served.is_for(environment):
                log.warning("somebody has removed the fork server's socket: another server is started")
            _served.stop()
            _served = None
        if _served is None:
            try:
                _served = ServedPython(environment, tasks=tasks)
            except OSError:
                return None
        return str(_served.program) if _served.runs else None  # if it has ended, a new server would end, too
