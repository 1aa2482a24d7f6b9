"""Python processes that start with all imports done: `python -m tiered_stream.fork_server DESCRIPTOR FOLDER [tasks]`.

Spark starts a Python process on the driver to look at a source's options, one to plan batch queries, and one for each
streaming query; a local master's tasks take more. Each imports pyspark, pyarrow, kafka-python, boto3 and this package,
which takes it 0.4 to 1.5 s of a core. This server imports them once, and forks itself for each process that
`fork_client.py` asks for.

It listens at the socket that it is given, in a folder that it removes when it ends: when its standard input does, which
is a pipe of the driver's.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import logging
import os
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

from tiered_stream.fork_client import FORKED, GO, REFUSED, STANDARD_DESCRIPTORS
from tiered_stream.forks import may_fork, settle_for_forks
from tiered_stream.process import share_heap_with_arrow
from tiered_stream.worker_daemon import import_ahead

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 8 << 20
"""Arguments and environment together have 6 MiB at most (execve(2))."""
TASKS = "tasks"
_DRIVER = 0
"""The descriptor of standard input."""
_BEFORE_TASKS = "pyspark.sql.worker.plan_data_source_read"
_F_SETSIG = 10
"""Of fcntl.h."""
_SECONDS_FOR_A_REQUEST = 2.0
_READ_AT_START = ("LD_", "LC_", "MALLOC_", "MIMALLOC_", "OPENBLAS_", "MKL_", "NUMBA_", "ARROW_")
"""How variables begin that a process, or a library that it imports, reads once."""
_THREADS = b"OMP_NUM_THREADS"
_OF_FORKS = b"1"
"""How many threads libraries get: what Spark says to tasks, and planners need no more."""


@dataclass(frozen=True)
class Request:
    """What a process is to run: `arguments` are those of a Python."""

    folder: bytes
    arguments: tuple[str, ...]
    environment: Mapping[bytes, bytes]

    def suits(self, started_with: Mapping[bytes, bytes]) -> bool:
        """Whether a fork of a Python that started with these variables can do it."""
        runs_module = self.arguments[:1] == ("-m",) and len(self.arguments) > 1
        threads = self.environment.get(_THREADS, _OF_FORKS)
        return runs_module and threads == _OF_FORKS and read_at_start(self.environment) == started_with


def parse_request(fields: bytes) -> Request:
    """What `fork_client.py` asks for, by the layout there. Raises ValueError: it is malformed."""
    count, folder, *words = fields.split(b"\0")
    arguments, variables = words[: int(count)], words[int(count) :]
    if len(arguments) != int(count):
        raise ValueError("arguments are missing")
    environment = dict(variable.partition(b"=")[::2] for variable in variables)
    return Request(folder, tuple(map(os.fsdecode, arguments)), environment)


def receive_request(client: socket.socket) -> Request:
    """Raises OSError, ValueError: it does not come in time, or is malformed."""
    client.settimeout(_SECONDS_FOR_A_REQUEST)
    length = int.from_bytes(_receive(client, 4), "little")
    if length > MAX_REQUEST_BYTES:
        raise ValueError(f"a request of {length} bytes")
    return parse_request(_receive(client, length))


def _receive(client: socket.socket, length: int) -> bytes:
    fields = bytearray()
    while len(fields) < length:
        received = client.recv(length - len(fields))
        if not received:
            raise ValueError(f"what should have {length} bytes ends after {len(fields)}")
        fields += received
    return bytes(fields)


def read_at_start(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables that cannot be changed any more once a Python has started and imported."""
    return {name: value for name, value in environment.items() if _is_read_at_start(os.fsdecode(name))}


def _is_read_at_start(name: str) -> bool:
    # What Python itself reads begins with PYTHON; PYTHON_ is Spark's.
    return name == "LANG" or (name.startswith("PYTHON") and name[6:7] != "_") or name.startswith(_READ_AT_START)


def import_planners() -> None:
    """Import what Spark's processes on the driver do, and ours in them."""
    import pyspark.daemon
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.plan_data_source_read  # noqa: F401

    from tiered_stream.delta import data_files_readers  # noqa: F401
    from tiered_stream.locate import log_source  # noqa: F401
    from tiered_stream.observe import driver_log  # noqa: F401
    from tiered_stream.plan import batch, splits, stream  # noqa: F401
    from tiered_stream.storage.s3_store import load_models

    load_models()


def import_for_forks(what: Callable[[], None]) -> None:
    """Import, and see to it that what is here can be forked.

    Raises:
        SystemExit: it can not. What fails to be imported is left to the forks, which tell better what is wrong.
    """
    gc.disable()
    try:
        what()
    except Exception as error:  # noqa: BLE001
        log.warning("Python processes import for themselves: %s", error)
    if not may_fork():
        sys.exit("no Python processes are forked: what was imported has started threads")
    gc.enable()
    settle_for_forks()


class ForkServer:
    """Forks itself for each request that comes to `listener`. `tasks` imports for them, once a read was planned."""

    def __init__(
        self, listener: socket.socket, started_with: Mapping[bytes, bytes], tasks: Callable[[], None] | None
    ) -> None:
        self._listener = listener
        self._started_with = started_with
        self._tasks = tasks

    def serve(self) -> tuple[Request, socket.socket] | None:
        """Until the driver has gone.

        Returns:
            In a fork: what it is to run, and who is to hear of its end. In the server: None.
        """
        events = select.poll()  # whatever number the driver's descriptors have
        for each in (_DRIVER, self._listener.fileno()):
            events.register(each, select.POLLIN)
        while True:
            if self._listener.fileno() not in dict(events.poll()):
                return None
            client, _ = self._listener.accept()
            try:
                request = receive_request(client)
            except (OSError, ValueError) as error:
                log.warning("no Python process was forked: %s", error)
                client.close()
                continue
            if self._fork(request, client):
                return request, client
            client.close()
            if self._tasks and _BEFORE_TASKS in request.arguments:
                import_for_forks(self._tasks)
                self._tasks = None

    def _fork(self, request: Request, client: socket.socket) -> bool:
        """Whether this is the fork."""
        child = None
        if request.suits(self._started_with):
            try:
                with warnings.catch_warnings():
                    # Python 3.12 and later: of threads, of which `may_fork` knows more.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    child = os.fork()
            except OSError as error:
                log.warning("no Python process was forked: %s", error)
        if child == 0:
            self._listener.close()
            return True
        with suppress(OSError):  # who asked is there no more
            client.sendall(FORKED if child else REFUSED)
        return False


def run(request: Request, client: socket.socket) -> None:
    """What `python -m` in a process of its own does; when `client` ends, this process does.

    Raises:
        SystemExit: the client has ended, or has given up and runs the module itself.
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
    _show_as(["python", *request.arguments])
    sys.modules.pop(module, None)  # it is run anew, as __main__
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _wait_for_go(client: socket.socket) -> list[int]:
    """Return the standard descriptors; raises SystemExit: the client has ended or given up, and no module is run."""
    client.settimeout(None)  # it says so, or ends
    try:
        answer, descriptors, _, _ = socket.recv_fds(client, 1, len(STANDARD_DESCRIPTORS))
    except OSError:
        sys.exit(0)
    if answer != GO or len(descriptors) != len(STANDARD_DESCRIPTORS):
        sys.exit(0)
    return descriptors


def _end_with(client: socket.socket) -> None:
    """Have the system send SIGTERM when the other end of the connection goes (fcntl(2)).

    The connection stays with a program that takes this process over, so that the other end waits for its end, too.

    Raises:
        SystemExit: it has gone before.
    """
    client.set_inheritable(True)
    fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(client, _F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) | os.O_ASYNC)
    with suppress(BlockingIOError):
        if not client.recv(1, socket.MSG_DONTWAIT):
            sys.exit(0)


def _show_as(words: Sequence[str]) -> None:
    """Let ps show these words, as far as there is room, in place of the server's own; proc(5) says where they lie."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = map(int, fields[45:47])
    title = "\0".join(words).encode(errors="replace")[: end - start - 1]
    ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)


def _run_and_tell(request: Request, client: socket.socket) -> None:
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


def _bury(*_: object) -> None:
    """Take note of forks that have ended; with it, the time that they used counts as this process's children's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    """Import, and serve until the driver has gone."""
    descriptor, folder, *more = sys.argv[1:]
    started_with = read_at_start(os.environb)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else it starts threads when it is imported
    share_heap_with_arrow()  # before a library's thread gets one of its own, which each fork would go on with
    signal.signal(signal.SIGCHLD, _bury)
    listener = socket.socket(fileno=int(descriptor))
    import_for_forks(import_planners)
    found = ForkServer(listener, started_with, import_ahead if TASKS in more else None).serve()
    if found:
        _run_and_tell(*found)
    else:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
