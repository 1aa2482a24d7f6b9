"""What a process has to see to before it forks itself with everything imported."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

_SURVIVES_A_FORK = "jemalloc_bg_thd"


def may_fork(tasks: Path = Path("/proc/self/task")) -> bool:
    """Whether a fork of this process has all of its threads that matter; `tasks` is as in proc(5).

    A fork takes over the one thread that called it. What we import starts none, but for one of jemalloc, which provides
    for forks itself.
    """
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != str(os.getpid())]
    return all(name == _SURVIVES_A_FORK for name in names)


def settle_for_forks() -> None:
    """Give each fork random numbers of its own, and let its garbage collection leave alone what is here.

    With it, the memory stays shared. Python's own `random` provides for forks; NumPy's does not.
    """
    if "numpy.random" in sys.modules:
        os.register_at_fork(after_in_child=sys.modules["numpy.random"].seed)
    gc.freeze()
