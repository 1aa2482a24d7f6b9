"""Functions that run in Python processes of their own, and talk with their parents by a pipe."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from tests.delta.driver import kill_group
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.processes import LONG

_CONTEXT = multiprocessing.get_context("spawn")


class Child:
    """Process that runs `run(connection, *arguments)`, in a session of its own; what it prints goes to `log_file`.

    It is to end when this process closes its end of the pipe, as it does at the end of a block.
    """

    def __init__(self, log_file: Path, run: Callable[..., None], *arguments: Any) -> None:
        self.log_file = log_file
        self.connection, other = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_run, args=(log_file, run, other, *arguments), daemon=True)
        self.process.start()
        other.close()

    @property
    def pid(self) -> int:
        """Also of its session and its process group."""
        assert self.process.pid is not None
        return self.process.pid

    def receive(self) -> Any:
        """Return what it sends next.

        Raises:
            EOFError: it has ended.
            StackError: it has sent nothing for very long.
        """
        if not self.connection.poll(LONG):
            raise StackError(f"nothing came from the process within {LONG:.0f} s, see {self.log_file}")
        try:
            return self.connection.recv()
        except ConnectionError as error:
            raise EOFError from error

    def ask(self, request: Any) -> Any:
        """Send it a request, and return its response."""
        self.connection.send(request)
        return self.receive()

    def kill(self) -> None:
        """SIGKILL to it and to the processes that it has started, as a JVM."""
        kill_group(self.pid)
        self.process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.process.join()


def requests(connection: Connection) -> Iterator[Any]:
    """Yield what the parent sends, until it closes its end."""
    with suppress(EOFError, ConnectionError):
        while True:
            yield connection.recv()


def _run(log_file: Path, run: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    os.setsid()
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    run(connection, *arguments)
