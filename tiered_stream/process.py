"""State and settings of a whole process: objects that its tasks share, logging, garbage collection and the heap.

Spark gives a Python worker one task after another, and connections should outlive a task. (The compiled kernels are
kept in `records/compiled.py`.)
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
"""Parameters of mallopt(3), with the numbers from malloc.h."""
_KEPT_BYTES = 128 << 20
"""Maximum bytes of free memory at its end that a heap keeps instead of returning them to the kernel."""
_FROM_HEAP = 32 << 20
"""Allocations above this size in bytes bypass the heap, and return to the kernel when freed; malloc's highest value."""
_ARROWS_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Environment variable that selects Arrow's memory pool; libarrow reads it only once."""
MOST_KEPT = 16
"""Maximum number of objects that one `PerProcess` keeps; beyond it, the least recently used object is evicted."""

_MANY_OBJECTS = 10_000  # a pause that made more objects ends with a collection, which takes a few ms
_YOUNGER_COLLECTIONS = 500  # number of younger collections per full collection; Python's default is 10
_DIGEST_KEY = os.urandom(32)
_FILES = (".location", ".file")
"""Suffixes of the names of options whose value is the path of a file with keys or certificates."""
_SPARK_FORMAT, _SPARK_TIME = "%(asctime)s %(levelname)s %(module)s: %(message)s", "%y/%m/%d %H:%M:%S"


class PerProcess(Generic[T]):
    """A process-wide cache of shared objects, one per distinct set of options.

    An evicted object is not closed here, because a task may still use it. The objects close themselves when nothing
    refers to them any more, so a caller has nothing to release.
    """

    def __init__(self) -> None:
        # By process id, because a fork must use neither its parent's connections nor a lock that a thread there holds.
        self._kept: dict[int, SingleFlightCache[bytes, T]] = {}

    def get(self, given: object, make: Callable[[], T]) -> T:
        """Return this process's shared object for the options `given`; call `make` if it does not exist yet.

        Options are values, mappings, and dataclasses of them. If an option names a file of keys or certificates, the
        file's inode, size and time are part of the cache key, because the file may be replaced by new credentials.

        Raises: as `make`.
        """
        return self._kept.setdefault(os.getpid(), SingleFlightCache(MOST_KEPT)).get(_digest(given), make)


def _digest(given: object) -> bytes:
    """Return a cache key for the options: a keyed hash, which does not reveal secrets among them."""
    return blake2b(repr(_comparable("", given)).encode(), key=_DIGEST_KEY).digest()


def _comparable(name: str, value: object) -> object:
    """Return the option in a form whose repr differs whenever the options differ.

    A dataclass's own repr is not used, because it leaves out secret fields.
    """
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return [(key, _comparable(key, value[key])) for key in sorted(value)]
    return (value, _state(value)) if isinstance(value, str) and name.endswith(_FILES) else value


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # the code that reads the file reports the error
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection while the block creates objects that will stay, such as imported modules.

    Without the pause, collections among these objects double the time of the block (0.1 s more for imports).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_count()[0] > _MANY_OBJECTS:
                gc.collect(1)  # one pass over the new objects instead of two, as young and then as older ones
            gc.enable()


def collect_old_rarely() -> None:
    """Make full garbage collections rare in this process; collections among young objects stay as they are.

    With 100,000 known segments, a full collection finds no garbage and stops all threads for 0.4 s.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNGER_COLLECTIONS)


def settle_worker() -> None:
    """Exclude all live objects from garbage collection (`gc.freeze`) if modules were imported since the last call.

    Spark's worker collects garbage after every task, which takes 0.1 s of a core for modules that are never freed.
    """
    _settle(len(sys.modules))


@cache
def share_heap() -> bool:
    """Make all threads of this process and of its forks allocate from one heap; return false if malloc is not glibc's.

    By default glibc gives each thread its own heap, and each heap keeps memory of past responses: 50 MiB together. The
    heap also keeps up to `_KEPT_BYTES` of free memory. Otherwise it would return a response's memory to the kernel, and
    the kernel would clear as many pages for the next response: 110,000 pages for 1 GiB read.
    """
    from ctypes import CDLL  # imported here, because planners do not need it

    with suppress(AttributeError, OSError):
        libc = CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        return True
    return False


def share_heap_with_arrow() -> None:
    """Make Arrow allocate from malloc's one shared heap, unless the user has chosen a memory pool.

    This must run before pyarrow is imported. Arrow's default pool returns the memory of record batches to the kernel
    within milliseconds, and the kernel must clear pages again for the next record batches. Also, free memory of one
    heap cannot be used by another heap.
    """
    if share_heap():
        os.environ.setdefault(_ARROWS_POOL, "system")


@cache
def _settle(_modules: int) -> None:
    gc.collect()
    gc.freeze()


def show_log() -> None:
    """Log this package's lines to stderr in Spark's format, unless logging is already set up in this process."""
    own = logging.getLogger("tiered_stream")
    if own.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_SPARK_FORMAT, _SPARK_TIME))
    own.addHandler(handler)
    own.setLevel(logging.INFO)


class _Muted(threading.local):
    """Thread-local list of the packages whose log lines this thread drops."""

    packages: tuple[str, ...] = ()


_muted = _Muted()


@contextmanager
def muted(*packages: str) -> Iterator[None]:
    """Drop the log lines of these packages in this thread during the block; other threads still log them."""
    before = _muted.packages
    _muted.packages = (*before, *_filtered(packages, len(logging.root.manager.loggerDict)))
    try:
        yield
    finally:
        _muted.packages = before


@cache
def _filtered(packages: tuple[str, ...], _loggers: int) -> tuple[str, ...]:
    """Add the filter `_is_heard` to all loggers of the packages, and return the prefixes of the loggers' names.

    `_loggers`, the number of loggers, is only a cache key: the filters are added again when there are more loggers.
    """
    prefixes = tuple(f"{package}." for package in packages)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(prefixes):
            # A logger's filter does not see its children's lines, so each logger gets one. A second add does nothing.
            logging.getLogger(name).addFilter(_is_heard)
    return prefixes


def _is_heard(record: logging.LogRecord) -> bool:
    return not record.name.startswith(_muted.packages)
