"""CPU cores and memory that this process may use, limited by the limits of its container."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_LIMITS = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
"""Names of a control group's files with its memory limit and its used memory, both in bytes, and a prefix.

The prefix begins the names of the whole group's statistics in `memory.stat`. The first entry is for cgroup version 2,
the second for version 1.
"""
_DROPPABLE = ("inactive_file", "active_file")
"""Names in `memory.stat` of file pages that the kernel can drop; `MemAvailable` counts these pages as free, too."""


def usable_cores(root: Path = _ROOT) -> int:
    """Return the number of CPU cores that this process may use, at least 1; a fraction of a core counts as one core.

    The result is the number of cores in the process's CPU affinity, limited by CPU quotas.

    `root` is the folder that contains /proc and /sys.
    """
    quotas = [quota for folder in control_groups("cpu", root) if (quota := _quota(folder)) is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)]))


def control_groups(controller: str, root: Path = _ROOT) -> Iterator[Path]:
    """Yield the folders of this process's control groups and of their parent groups, whose limits apply, too.

    `controller` is the kernel's name of a resource, such as `cpu` or `memory`.

    In a container, /proc may name a group by its path on the host, but the container's /sys/fs/cgroup has only the
    container's own group. So some of the yielded folders do not exist. Nothing is yielded if /proc has no control
    groups.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux, or /proc is not mounted
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        within = PurePosixPath(path.lstrip("/"))
        for group in (within, *within.parents):
            for mounted in (controllers, *controllers.split(",")) if controllers else ("", "unified"):
                yield root / "sys/fs/cgroup" / mounted / group


def _quota(folder: Path) -> float | None:
    """Return the number of cores that the control group in `folder` may use.

    None: the folder does not exist, or the group has no quota.
    """
    with suppress(OSError, ValueError, ZeroDivisionError):
        if (folder / "cpu.max").exists():  # cgroup version 2; the quota is "max" if there is no limit
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if int(quota) > 0:
            return int(quota) / int(period)
    return None


def free_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes of memory that this process can still take without swapping; None: they are not known.

    `root` is the folder that contains /proc and /sys.
    """
    found = [free for folder in control_groups("memory", root) if (free := _free_in(folder)) is not None]
    with suppress(OSError, KeyError, ValueError):  # not Linux, or /proc is not mounted
        found.append(int(_fields(root / "proc/meminfo")["MemAvailable:"]) << 10)
    return max(0, min(found)) if found else None


def _free_in(folder: Path) -> int | None:
    """Return the bytes that the control group in `folder` can still take; None: it does not exist, or has no limit."""
    for limit, used, prefix in _LIMITS:
        with suppress(OSError, KeyError, ValueError):  # the limit is "max" if there is none
            most, statistics = int((folder / limit).read_text()), _fields(folder / "memory.stat")
            droppable = sum(int(statistics[prefix + name]) for name in _DROPPABLE)
            return most - int((folder / used).read_text()) + droppable
    return None


def _fields(file: Path) -> dict[str, str]:
    return {name: value for name, value, *_ in map(str.split, file.read_text().splitlines())}
