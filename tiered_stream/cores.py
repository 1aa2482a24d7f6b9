"""How many cores this process may use: those it is bound to, within the CPU quota of its container."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """At least 1. A part of a core counts as one. `root` is where /proc and /sys are."""
    quotas = [quota for folder in _control_groups(root) if (quota := _quota(folder)) is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)]))


def _control_groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups for CPU, and of those above them, which bind it, too.

    In a container, /proc may name groups by their place on the host, where the container's /sys/fs/cgroup has only its
    own.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux, or /proc is not there
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        within = PurePosixPath(path.lstrip("/"))
        for group in (within, *within.parents):
            for mounted in (controllers, *controllers.split(",")) if controllers else ("", "unified"):
                yield root / "sys/fs/cgroup" / mounted / group


def _quota(folder: Path) -> float | None:
    """How many cores the group may use; None: there is no such group, or no quota."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = _values(folder)
        if int(quota) > 0:
            return int(quota) / int(period)
    return None


def _values(folder: Path) -> list[str]:
    """Microseconds of CPU in each period, and the period: of version 2, or of version 1."""
    if (folder / "cpu.max").exists():
        return (folder / "cpu.max").read_text().split()  # "max" where there is none
    return [(folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")]
