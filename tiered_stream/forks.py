"""What a process has to see to before it forks itself with everything imported."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from zipimport import zipimporter

_SURVIVES_A_FORK = "jemalloc_bg_thd"


def may_fork(tasks: Path = Path("/proc/self/task")) -> bool:
    """Whether a fork of this process has all of its threads that matter; `tasks` is as in proc(5).

    A fork takes over the one thread that called it. What we import starts none, but for one of jemalloc, which provides
    for forks itself.
    """
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != str(os.getpid())]
    return all(name == _SURVIVES_A_FORK for name in names)


def settle_for_forks() -> None:
    """Give each fork random numbers of its own, and let it leave alone what is here: the memory stays shared.

    Python's own `random` provides for forks; NumPy's does not. Spark has each Python drop what it knows of folders with
    modules once; of an archive, Python up to 3.12 then reads the list of contents again, for each package in it: 0.1 s
    of a core for Spark's own archives. What is imported next finds the lists that were read.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if "numpy.random" in sys.modules:
        os.register_at_fork(after_in_child=sys.modules["numpy.random"].seed)
    gc.freeze()
