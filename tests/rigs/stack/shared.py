"""Services that all processes of a test run share: each one starts at its first use and stops with the run.

The first process of a run (pytest itself, or xdist's controller) owns the services, because it outlives all workers.
A worker asks it by a socket in the run's folder, and gets a copy of the service's description.

    with ServicesOfRun():
        stack = shared(tiered_stack)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from tests.rigs.stack.errors import StackError

FOLDER = "TIERED_STREAM_TEST_SERVICES"
"""Environment variable that names the run's folder."""
_SOCKET = "socket"
_TAKEN, _AGAIN = "Address already in use", "-again"
"""Text in a service's log if another process took one of its ports first; end of the folder of the second try."""

Service = TypeVar("Service")
Starter = Callable[[Path], AbstractContextManager[Service]]
"""Function of a module: gets an empty folder, and runs the service as a context manager. Its value can be pickled."""


def shared(starter: Starter[Service]) -> Service:
    """Return the run's service, which the first caller starts.

    Raises:
        StackError: it could not be started, or this process is not of a test run.
    """
    with Client(str(folder_of_run() / _SOCKET), "AF_UNIX") as connection:
        connection.send(starter)
        found = connection.recv()
    if isinstance(found, BaseException):
        raise found
    return cast(Service, found)


def folder_of_run() -> Path:
    """Return the folder that all processes of this run know.

    Raises:
        StackError: this process is not of a test run.
    """
    folder = os.environ.get(FOLDER)
    if folder is None:
        raise StackError(f"{FOLDER} is not set: services are shared within a run of pytest only")
    return Path(folder)


def _notes(error: BaseException) -> list[str]:
    """Return the notes of an error, which have the ends of log files."""
    return getattr(error, "__notes__", [])


class ServicesOfRun:
    """Context manager of the process that owns the services. They stop at its end, the last one first."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tiered-stream-run-"))
        self._lock = threading.Lock()
        self._running: dict[Starter[Any], _Running] = {}
        self._listener = Listener(str(self._folder / _SOCKET), "AF_UNIX", backlog=64)

    def __enter__(self) -> Self:
        os.environ[FOLDER] = str(self._folder)
        threading.Thread(target=self._listen, daemon=True, name="shared services").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for each in reversed(self._running.values()):
            each.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.environ.pop(FOLDER, None)

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Any) -> None:
        with connection:
            try:
                connection.send(self._found(connection.recv()).result())
            except (StackError, OSError, AssertionError, TypeError, subprocess.SubprocessError) as error:
                connection.send(StackError("\n".join([f"{type(error).__name__}: {error}", *_notes(error)])))

    def _found(self, starter: Starter[Any]) -> Future[Any]:
        with self._lock:
            if starter not in self._running:
                number = len(self._running)
                self._running[starter] = _Running(starter, self._folder / f"{number}-{starter.__name__}")
            return self._running[starter].service


class _Running:
    """A service in a thread of its own, because the kernel ends a child process with the thread that started it."""

    def __init__(self, starter: Starter[Any], folder: Path) -> None:
        self.service: Future[Any] = Future()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(starter, folder), daemon=True, name=folder.name)
        self._thread.start()

    def _run(self, starter: Starter[Any], folder: Path) -> None:
        try:
            folder.mkdir()
            with starter(folder) as service:
                self.service.set_result(service)
                self._ends.wait()
        except BaseException as error:
            if self.service.done():
                raise
            if any(_TAKEN in note for note in _notes(error)) and not folder.name.endswith(_AGAIN):
                self._run(starter, folder.with_name(folder.name + _AGAIN))
            else:
                self.service.set_exception(error)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
