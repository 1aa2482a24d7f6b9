"""Check that a process can be forked safely after its imports, and preparation of its forks."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from zipimport import zipimporter

_SURVIVES_A_FORK = "jemalloc_bg_thd"


def may_fork(tasks: Path = Path("/proc/self/task")) -> bool:
    """Return true if this process has no threads that a fork would lack; `tasks` is /proc/self/task (proc(5)).

    A fork continues only the thread that called fork. The modules that we import start no thread except jemalloc's
    background thread, and jemalloc handles forks itself.
    """
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != str(os.getpid())]
    return all(name == _SURVIVES_A_FORK for name in names)


def settle_for_forks() -> None:
    """Prepare this process for forks: random numbers, garbage collection, and imports from zip archives.

    NumPy's random generator gets a new seed in each fork; Python's `random` does so by itself. The objects of this
    process are frozen (`gc.freeze`), so that the garbage collector of a fork does not write to memory that forks share.

    Spark makes each Python clear its import caches once (`importlib.invalidate_caches`). Python up to 3.12 then reads a
    zip archive's list of contents again for each package in the archive. This takes 0.1 s of a core for Spark's
    archives. So the archives' importers are removed from the import cache here, and the next import reuses the lists
    that were already read.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if "numpy.random" in sys.modules:
        os.register_at_fork(after_in_child=sys.modules["numpy.random"].seed)
    gc.freeze()
