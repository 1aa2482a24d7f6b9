"""Fork server for the driver's Pythons: `python -m tiered_stream.pythons.fork_server DESCRIPTOR FOLDER [tasks]`.

Spark starts a Python process on the driver to create a source, one to plan a batch query, and one for each streaming
query. With a local master, tasks start more Python processes. Each process imports pyspark, pyarrow, kafka-python,
boto3 and this package, which takes 0.4 to 1.5 s of a core. This server imports them once, and forks itself for each
process that `fork_client.py` requests.

DESCRIPTOR is the listening socket. FOLDER contains the socket, and the server removes FOLDER when it ends. With
`tasks`, the server also imports the modules that tasks need, after the first request that plans a read. The server ends
when its standard input, a pipe from the driver, is closed.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import logging
import os
import re
import runpy
import select
import shutil
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tiered_stream.process.heap_and_gc import share_heap_with_arrow
from tiered_stream.pythons.fork_client import FORKED, GO, REFUSED, STANDARD_DESCRIPTORS
from tiered_stream.pythons.forks import may_fork, settle_for_forks
from tiered_stream.worker_daemon import import_ahead

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 8 << 20
"""Maximum bytes of one request; the arguments and the environment of a process have at most 6 MiB (execve(2))."""
TASKS = "tasks"
_DRIVER = 0
"""Descriptor of standard input, the pipe from the driver."""
_BEFORE_TASKS = "pyspark.sql.worker.plan_data_source_read"
_F_SETSIG = 10
"""Command F_SETSIG of fcntl(2): choose the signal that is sent when the descriptor becomes ready."""
_SECONDS_FOR_A_REQUEST = 2.0
_READ_AT_START = re.compile(rb"LANG\Z|PYTHON(?!_)|LD_|LC_|MALLOC_|MIMALLOC_|OPENBLAS_|MKL_|NUMBA_|ARROW_")
"""Beginnings of names of environment variables that a process or an imported library reads only once, at its start.

Names that begin with PYTHON_ belong to Spark.
"""
_THREADS = b"OMP_NUM_THREADS"
_FORK_THREADS = b"1"
"""Number of threads that libraries use in forks (OMP_NUM_THREADS).

Spark sets 1 for tasks, and planners need no more.
"""


@dataclass(frozen=True)
class Request:
    """Request to run a Python process: its working folder, its arguments (`-m MODULE …`) and its environment."""

    folder: bytes
    arguments: tuple[str, ...]
    environment: Mapping[bytes, bytes]

    def suits(self, started_with: Mapping[bytes, bytes]) -> bool:
        """Return true if a fork can run this request; `started_with` is `read_at_start(os.environb)` of the server.

        The arguments must begin with `-m MODULE`. OMP_NUM_THREADS must be 1 or unset. All variables that are read only
        at the start must have the same values as in the server.
        """
        runs_module = self.arguments[:1] == ("-m",) and len(self.arguments) > 1
        threads = self.environment.get(_THREADS, _FORK_THREADS)
        return runs_module and threads == _FORK_THREADS and read_at_start(self.environment) == started_with


def parse_request(fields: bytes) -> Request:
    """Parse a request's fields, in the layout that `fork_client.py` documents.

    Raises:
        ValueError: the fields are malformed.
    """
    count, folder, *words = fields.split(b"\0")
    arguments, variables = words[: int(count)], words[int(count) :]
    if len(arguments) != int(count):
        raise ValueError("arguments are missing")
    environment = dict(variable.partition(b"=")[::2] for variable in variables)
    return Request(folder, tuple(map(os.fsdecode, arguments)), environment)


def receive_request(client: socket.socket) -> Request:
    """Read one request from a client's socket.

    Raises:
        OSError: the client sends too slowly, or the connection fails.
        ValueError: the request is malformed, incomplete or too long.
    """
    client.settimeout(_SECONDS_FOR_A_REQUEST)
    with client.makefile("rb") as stream:
        length = int.from_bytes(_exactly(stream, 4), "little")
        if length > MAX_REQUEST_BYTES:
            raise ValueError(f"a request of {length} bytes")
        return parse_request(_exactly(stream, length))


def _exactly(stream: BinaryIO, length: int) -> bytes:
    fields = stream.read(length)
    if len(fields) < length:
        raise ValueError(f"a field of {length} bytes ends after {len(fields)}")
    return fields


def read_at_start(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that Python or a library reads only at its start.

    A fork does not read them again, so it cannot run a request with other values of these variables.
    """
    return {name: value for name, value in environment.items() if _READ_AT_START.match(name)}


def import_planners() -> None:
    """Import the modules that Python processes on the driver need to create sources and to plan queries."""
    import pyspark.daemon
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.plan_data_source_read  # noqa: F401

    from tiered_stream.delta.landing import data_files_readers  # noqa: F401
    from tiered_stream.locate import log_source  # noqa: F401
    from tiered_stream.observe import driver_log  # noqa: F401
    from tiered_stream.plan import batch, splits, stream  # noqa: F401
    from tiered_stream.storage import s3  # noqa: F401
    from tiered_stream.storage.s3_client import load_models

    load_models()


def import_for_forks(import_modules: Callable[[], None]) -> None:
    """Call `import_modules`, and then prepare this process for forks (`settle_for_forks`).

    If an import fails, a warning is logged. The forks then import the modules themselves, and report the error.

    Raises:
        SystemExit: this process cannot be forked, because an import has started threads.
    """
    gc.disable()
    try:
        import_modules()
    except Exception as error:  # noqa: BLE001
        log.warning("the fork server could not import its modules, so each Python process imports them: %s", error)
    if not may_fork():
        sys.exit("no Python processes are forked: an imported module has started threads")
    gc.enable()
    settle_for_forks()


def serve(
    listener: socket.socket, started_with: Mapping[bytes, bytes], import_for_tasks: Callable[[], None] | None
) -> tuple[Request, socket.socket] | None:
    """Fork this process for each request that arrives at `listener`, until the driver has closed the pipe.

    A request that does not suit a fork (`Request.suits`) is refused. If a request is malformed, its connection is
    closed.

    Args:
        started_with: the server's environment variables that are read only at the start (`read_at_start`).
        import_for_tasks: imports the modules that tasks need; it is called once, after the first request that plans a
            read. None: forks of tasks import these modules themselves.

    Returns:
        In a fork: the request to run, and the client's socket, which gets the exit code. In the server: None.
    """
    events = select.poll()  # select() would fail if a descriptor's number is above 1023
    for descriptor in (_DRIVER, listener.fileno()):
        events.register(descriptor, select.POLLIN)
    while True:
        if listener.fileno() not in dict(events.poll()):
            return None
        client, _ = listener.accept()
        try:
            request = receive_request(client)
        except (OSError, ValueError) as error:
            log.warning("no Python process was forked: %s", error)
            client.close()
            continue
        child = _fork() if request.suits(started_with) else None
        if child == 0:
            listener.close()
            return request, client
        with suppress(OSError), client:  # the client may have ended
            client.sendall(FORKED if child else REFUSED)
        if import_for_tasks and _BEFORE_TASKS in request.arguments:
            import_for_forks(import_for_tasks)
            import_for_tasks = None


def _fork() -> int | None:
    """Fork this process; return 0 in the fork, and in the server the fork's process id, or None if forking fails."""
    try:
        with warnings.catch_warnings():
            # Python 3.12 and later warn of a fork with threads; `may_fork` has checked the threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork()
    except OSError as error:
        log.warning("no Python process was forked: %s", error)
        return None


def run(request: Request, client: socket.socket) -> None:
    """Run the requested module in this fork as `python -m` would; this process ends when the client ends.

    `client` is the socket to the client, from which the fork gets its standard descriptors.

    Raises:
        SystemExit: the client has ended, or has given up and runs the module itself; or the module has raised it.
    """
    descriptors = _wait_for_go(client)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _end_with(client)
    os.environ.clear()
    os.environb.update(request.environment)
    time.tzset()
    os.chdir(request.folder)
    if not sys.flags.safe_path:
        sys.path[0] = os.fsdecode(request.folder)
    module = request.arguments[1]
    sys.argv = list(request.arguments[1:])
    _set_process_title(["python", *request.arguments])
    sys.modules.pop(module, None)  # the module runs again, as __main__
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _wait_for_go(client: socket.socket) -> list[int]:
    """Wait for the client's b"!" and return the three standard descriptors that come with it."""
    client.settimeout(None)  # the client sends b"!", or ends and closes the connection
    try:
        message, descriptors, _, _ = socket.recv_fds(client, 1, len(STANDARD_DESCRIPTORS))
    except OSError:
        sys.exit(0)
    if message != GO or len(descriptors) != len(STANDARD_DESCRIPTORS):
        sys.exit(0)
    return descriptors


def _end_with(client: socket.socket) -> None:
    """Make the kernel send SIGTERM to this process when the client closes the connection (fcntl(2)).

    A program that replaces this process (exec) inherits the connection. So the client waits for the end of that
    program, too.
    """
    client.set_inheritable(True)
    fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(client, _F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) | os.O_ASYNC)
    with suppress(BlockingIOError):
        if not client.recv(1, socket.MSG_DONTWAIT):
            sys.exit(0)


def _set_process_title(arguments: Sequence[str]) -> None:
    """Make `ps` show `arguments` in place of the server's command line (proc(5): `arg_start`).

    The text is cut to the length of the server's command line.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = map(int, fields[45:47])
    title = "\0".join(arguments).encode(errors="replace")[: end - start - 1]
    ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)


def _run_and_report(request: Request, client: socket.socket) -> None:
    """Run the request in this fork, and send its exit code to the client as one byte."""
    code = 1
    try:
        run(request, client)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    finally:
        with suppress(OSError):
            client.sendall(bytes([code & 0xFF]))


def _reap(*_: object) -> None:
    """Remove ended forks from the process table (waitpid).

    Their CPU time is then part of the CPU time of this process's children.
    """
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    """Import the planners' modules and serve requests until the driver has ended; in a fork, run the fork's request."""
    descriptor, folder, *options = sys.argv[1:]
    started_with = read_at_start(os.environb)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # otherwise OpenBLAS starts threads when it is imported
    share_heap_with_arrow()  # before a library's thread gets its own heap, which each fork would keep
    signal.signal(signal.SIGCHLD, _reap)
    listener = socket.socket(fileno=int(descriptor))
    fork = None
    try:
        import_for_forks(import_planners)
        fork = serve(listener, started_with, import_ahead if TASKS in options else None)
    finally:
        if fork is None:  # the server ends, also because it cannot be forked
            shutil.rmtree(folder, ignore_errors=True)
    if fork:
        _run_and_report(*fork)


if __name__ == "__main__":
    main()
