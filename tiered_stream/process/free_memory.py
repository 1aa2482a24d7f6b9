"""Memory that this process can still take: of the machine, limited by the memory of its container."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tiered_stream.process.resources import control_groups

_LIMITS = (("memory.max", "memory.current", "inactive_file"),
           ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))  # fmt: skip
"""Files of a control group with its limit and its use in bytes, in version 2 and 1, and the file pages it can drop."""


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that this process can still take without swapping; None: they are not known.

    `root` is the folder that contains /proc and /sys.
    """
    found = [free for folder in control_groups("memory", root) if (free := _free_in(folder)) is not None]
    with suppress(OSError, KeyError, ValueError):  # not Linux, or /proc is not mounted
        found.append(int(_fields(root / "proc/meminfo")["MemAvailable:"]) << 10)
    return max(0, min(found)) if found else None


def _free_in(folder: Path) -> int | None:
    """Return the bytes that the control group in `folder` can still take; None: it does not exist, or has no limit."""
    for limit, used, droppable in _LIMITS:
        with suppress(OSError, KeyError, ValueError):  # the limit is "max" if there is none
            most = int((folder / limit).read_text())
            return most - int((folder / used).read_text()) + int(_fields(folder / "memory.stat")[droppable])
    return None


def _fields(file: Path) -> dict[str, str]:
    return {name: value for name, value, *_ in map(str.split, file.read_text().splitlines())}
