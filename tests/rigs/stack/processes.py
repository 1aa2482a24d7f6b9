"""A service as a real process on loopback, which never outlives the Python process that started it."""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from tests.rigs.stack.errors import StackError

PORTS = range(20_000, 32_000)
"""Below the ports that Linux lends to outgoing connections, so that a restarted service finds its port still free."""
LONG = 600.0
"""Seconds after which what is waited for will not come, on a machine twenty times slower than this one too."""
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nobody listens now."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise StackError(f"no {count} free ports in {PORTS}")


def listens(port: int) -> bool:
    """Whether somebody accepts connections at this port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], what: str, timeout: float = LONG, pause: float = 0.2) -> None:
    """Ask `condition` until it holds.

    Raises:
        StackError: it did not hold within `timeout` seconds; the message says `what` was waited for.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise StackError(f"waited {timeout:.0f} s in vain for: {what}")
        time.sleep(pause)


def run_logged(name: str, command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> None:
    """Run a command to its end; what it prints on standard error goes to the end of `log_file`.

    Raises:
        StackError: it failed; the message has the log's place and its last lines.
    """
    with log_file.open("ab") as log:
        status = subprocess.run(command, check=False, env=environment, stderr=log).returncode
    if status:
        raise StackError(f"{name} ended with status {status}; {log_file} ends:\n{log_end(log_file)}")


def log_end(log_file: Path) -> str:
    """The last lines of a log."""
    with log_file.open("rb") as log:
        log.seek(max(0, log_file.stat().st_size - 3000))
        return log.read().decode(errors="replace")


def _die_with(parent: int) -> Callable[[], None]:
    def in_child() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return in_child


class ServiceProcess:
    """One run of a command: its output goes to `log_file`, it is killed when this Python process ends in any way.

    The kernel ties it to the *thread* that calls `start` (prctl(2)): start it from one that lives on.
    """

    def __init__(self, name: str, command: Sequence[str], log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._foreign_pid: int | None = None

    def __getstate__(self) -> dict[str, object]:
        """Describe it to another process, which must neither start nor end it."""
        return {**self.__dict__, "_process": None, "_foreign_pid": self.pid}

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            StackError: it was never started.
        """
        if self._foreign_pid is not None:
            return self._foreign_pid
        if self._process is None:
            raise StackError(f"{self.name} is not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        if self._foreign_pid is not None:
            return Path(f"/proc/{self._foreign_pid}").exists()
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status of a process that was stopped, negative for a signal that ended it."""
        return None if self._process is None else self._process.returncode

    def start(self, ready: Callable[[], bool], timeout: float = LONG) -> None:
        """Start it and wait until `ready()`.

        Raises:
            StackError: it ended, or did not become ready in time; it is not running then. Or it is another process's.
        """
        self._check_own()
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C in a terminal is for us; we stop services in order
                preexec_fn=_die_with(os.getpid()),
            )
        atexit.register(self.kill)
        try:
            wait_until(lambda: not self.running or ready(), f"{self.name} to be ready", timeout)
            if not self.running:
                raise StackError(f"{self.name} ended with status {self._process.returncode}")
        except BaseException as error:
            self.kill()
            error.add_note(f"{self.log_file} ends:\n{log_end(self.log_file)}")
            raise

    def stop(self, grace: float = 30.0) -> None:
        """Ask it to end (SIGTERM), and kill it if it has not after `grace` seconds. No-op when it is not running."""
        if self._process is not None and self.running:
            self._process.terminate()
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL). No-op when it is not running."""
        self._check_own()
        atexit.unregister(self.kill)
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _check_own(self) -> None:
        if self._foreign_pid is not None:
            raise StackError(f"{self.name} is shared by all processes of this run: a test that stops it needs its own")


class Closing(ABC):
    """Context manager that closes itself at its end."""

    @abstractmethod
    def close(self) -> None:
        """End everything that it has opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Started(ABC):
    """Context manager that runs from `start` to `stop`, which is also called if `start` fails."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it serves."""

    @abstractmethod
    def stop(self) -> None:
        """End it. No-op when it is not running."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Service(Started):
    """One process at a time. A service keeps its ports over `stop`, `kill` and `start`."""

    grace: ClassVar[float] = 10.0
    """Seconds that `stop` waits for the process to end by itself."""
    _process: ServiceProcess | None = None

    @property
    def process(self) -> ServiceProcess:
        """The last run.

        Raises:
            StackError: there was none.
        """
        if self._process is None:
            raise StackError(f"{type(self).__name__} was never started")
        return self._process

    def stop(self) -> None:
        """Ask it to end, as an operator does. No-op when it is not running."""
        if self._process is not None:
            self._process.stop(self.grace)

    def kill(self) -> None:
        """End it as a crash would. No-op when it is not running."""
        if self._process is not None:
            self._process.kill()

    def _serve(self, name: str, command: Sequence[str], log_file: Path, ready: Callable[[], bool]) -> None:
        self._process = ServiceProcess(name, command, log_file)
        self._process.start(ready)
