"""What lives as long as the process: what its tasks share, and its settings for logging and garbage collection.

Spark gives a Python worker one task after the other, and connections are to outlive them. (The compiled kernels have a
place of their own: `records/compiled.py`.)
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import blake2b
from typing import Generic, TypeVar

from tiered_stream.single_flight import SingleFlightCache

T = TypeVar("T")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of malloc.h."""
_KEPT_BYTES = 128 << 20
"""What a heap keeps at the most of what was freed at its end."""
_FROM_HEAP = 32 << 20
"""What is larger does not come from the heap, and goes back at once; malloc knows no higher bound."""
_ARROWS_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""A variable that libarrow reads once."""
MOST_KEPT = 16
"""Of one kind; one more, and the one that was longest without use goes."""

_MANY_OBJECTS = 10_000  # made during a pause: a few milliseconds to look through
_YOUNGER_COLLECTIONS = 500  # of those that are followed by a full one: ten where nothing is set
_DIGEST_KEY = os.urandom(32)
_FILES = (".location", ".file")
"""How the names of options end that name a file with keys or certificates."""
_SPARK_FORMAT, _SPARK_TIME = "%(asctime)s %(levelname)s %(module)s: %(message)s", "%y/%m/%d %H:%M:%S"


class PerProcess(Generic[T]):
    """Things of one kind that all threads of a process share: one for whatever options were given for it.

    What is evicted is not closed here, as a task may be at work with it: such things close themselves when
    nobody holds them any more. A reference is the lease, so no caller can forget to give it back.
    """

    def __init__(self) -> None:
        # By process: a fork must take over neither connections of its parent nor a lock that a thread there holds.
        self._kept: dict[int, SingleFlightCache[bytes, T]] = {}

    def get(self, given: object, make: Callable[[], T]) -> T:
        """The process's thing for the options `given`, made by this call or an earlier one. Raises what `make` raises.

        Options are values, mappings, and dataclasses of them. A file that they name counts with its state: new
        credentials may have been put in its place.
        """
        return self._kept.setdefault(os.getpid(), SingleFlightCache(MOST_KEPT)).get(_digest(given), make)


def _digest(given: object) -> bytes:
    """A key for options that does not give away the secrets among them."""
    return blake2b(repr(_comparable("", given)).encode(), key=_DIGEST_KEY).digest()


def _comparable(name: str, value: object) -> object:
    """The option in a form whose repr is the same only for the same; a dataclass's own leaves out its secrets."""
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return [(key, _comparable(key, value[key])) for key in sorted(value)]
    return (value, _state(value)) if isinstance(value, str) and name.endswith(_FILES) else value


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # who reads it will say so
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def collection_paused() -> Iterator[None]:
    """What is made here stays: to look for garbage in it meanwhile takes as long again (0.1 s at imports)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_count()[0] > _MANY_OBJECTS:
                gc.collect(1)  # once, where it would be twice: as young ones, then as older ones
            gc.enable()


def collect_old_rarely() -> None:
    """Let garbage be looked for among young objects as ever, and among all of them seldom.

    That takes 0.4 s where 100,000 segments are known, in which nobody is answered, and finds nothing in them.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNGER_COLLECTIONS)


def settle_worker() -> None:
    """Take all that tasks have imported out of the garbage collector's sight, whenever that is more than before.

    Spark's worker collects garbage after every task, which takes 0.1 s of a core for modules that never go away.
    """
    _settle(len(sys.modules))


@cache
def share_heap() -> bool:
    """Let all threads of this process, and of its forks, take memory from one heap. False: malloc is not glibc's.

    It gives each thread one of its own else, and each keeps some of what its responses took: 50 MiB together. Of one
    heap it gives the kernel back what a response took, which clears as many pages for the next: 110,000 for a GiB.
    """
    from ctypes import CDLL  # here, since who plans needs none

    with suppress(AttributeError, OSError):
        libc = CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        return True
    return False


def share_heap_with_arrow() -> None:
    """Let Arrow take memory from that heap, too, unless the user has chosen a pool; before pyarrow is imported.

    The pool that it would choose gives back within milliseconds what record batches took, and has the kernel clear
    pages again for the next ones; and what is free in one of two heaps is of no use to the other.
    """
    if share_heap():
        os.environ.setdefault(_ARROWS_POOL, "system")


@cache
def _settle(_modules: int) -> None:
    gc.collect()
    gc.freeze()


def show_log() -> None:
    """Let stderr have our lines, in the form of Spark's own, unless somebody has set logging up in this process."""
    own = logging.getLogger("tiered_stream")
    if own.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_SPARK_FORMAT, _SPARK_TIME))
    own.addHandler(handler)
    own.setLevel(logging.INFO)


class _Muted(threading.local):
    """The packages whose lines this thread drops."""

    packages: tuple[str, ...] = ()


_muted = _Muted()


@contextmanager
def muted(*packages: str) -> Iterator[None]:
    """Drop what libraries log in this thread meanwhile; what the user has from them, in other threads, is theirs."""
    before = _muted.packages
    _muted.packages = (*before, *_filtered(packages, len(logging.root.manager.loggerDict)))
    try:
        yield
    finally:
        _muted.packages = before


@cache
def _filtered(packages: tuple[str, ...], _loggers: int) -> tuple[str, ...]:
    """How the names of their loggers begin, all of which hear of `_muted`; asked anew when there are more loggers."""
    prefixes = tuple(f"{package}." for package in packages)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(prefixes):
            # A logger's filters do not see what its children log, so each has it; to add it again is no harm.
            logging.getLogger(name).addFilter(_is_heard)
    return prefixes


def _is_heard(record: logging.LogRecord) -> bool:
    return not record.name.startswith(_muted.packages)
