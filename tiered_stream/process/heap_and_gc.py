"""Settings of a process's heap (malloc) and of its garbage collector."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Parameters of mallopt(3), with the numbers from malloc.h."""
_MAX_FREE_BYTES = 128 << 20
"""Maximum bytes of free memory at the end of the heap that malloc keeps, instead of returning them to the kernel."""
_MAX_HEAP_ALLOCATION = 32 << 20
"""Size in bytes up to which an allocation comes from the heap; this is the highest value that malloc accepts.

Larger allocations bypass the heap, and are returned to the kernel when they are freed.
"""
_ARROW_POOL_VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"
"""Environment variable that selects Arrow's memory pool; libarrow reads it only once."""
_MANY_OBJECTS = 10_000  # a pause in which more objects were made ends with a collection, which takes a few ms
_YOUNGER_COLLECTIONS = 500  # number of younger collections per full collection; Python's default is 10


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection in the `with` block, for blocks that create many objects that stay in memory.

    An example is a block that creates 100,000 segments: collections among these objects would take a third of the
    block's time. If the block has created more than 10,000 objects, the new objects are collected once at its end.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_count()[0] > _MANY_OBJECTS:
                gc.collect(1)  # generations 0 and 1 together: one pass over the new objects, not two
            gc.enable()


def collect_old_rarely() -> None:
    """Make full garbage collections rare in this process: at most one for 500 collections of the middle generation.

    With 100,000 segments in memory, a full collection finds no garbage and stops all threads for 0.4 s.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNGER_COLLECTIONS)


def settle_worker() -> None:
    """Exclude all live objects from garbage collection (`gc.freeze`), if modules were imported since the last call.

    A Python worker of Spark collects garbage after every task. Without the freeze, the collector would search modules
    that are never freed, which takes 0.1 s of a core.
    """
    _freeze_objects(len(sys.modules))


@cache
def share_heap() -> bool:
    """Make all threads of this process and of its forks allocate from one heap.

    By default glibc gives each thread its own heap, and each heap keeps the memory of past responses: 50 MiB together.
    The one heap keeps up to `_MAX_FREE_BYTES` of free memory. Otherwise it would return a response's memory to the
    kernel, and the kernel would clear pages again for the next response: 110,000 pages for 1 GiB that is read.

    Returns:
        True if the heap is shared; false if malloc is not glibc's, so that nothing was changed.
    """
    from ctypes import CDLL  # imported here, because planners do not need it

    with suppress(AttributeError, OSError):
        libc = CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAX_HEAP_ALLOCATION)
        libc.mallopt(_M_TRIM_THRESHOLD, _MAX_FREE_BYTES)
        return True
    return False


def share_heap_with_arrow() -> None:
    """Make Arrow allocate from malloc's heap, and all threads from one heap (`share_heap`).

    If the user has chosen a memory pool (`ARROW_DEFAULT_MEMORY_POOL`), Arrow uses that pool. If malloc is not glibc's,
    nothing changes. This must run before pyarrow is imported. Arrow's default pool returns the memory of record batches
    to the kernel within milliseconds, and the kernel must clear pages again for the next record batches. Also, free
    memory of one heap cannot be used by another heap.
    """
    if share_heap():
        os.environ.setdefault(_ARROW_POOL_VARIABLE, "system")


@cache
def _freeze_objects(_modules: int) -> None:
    gc.collect()
    gc.freeze()
