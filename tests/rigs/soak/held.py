"""What processes and folders hold, as the kernel tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
MEMORY, DESCRIPTORS, THREADS = "memory, MiB", "descriptors", "threads"
FILES, SIZE = "files", "MiB"


def held_by(pids: Iterable[int]) -> dict[str, float]:
    """Memory in MiB, descriptors and threads of processes together; one that has just ended holds nothing.

    The memory is what the processes have made themselves (anonymous), shared between forks: pages of files come and go
    as the kernel likes, and depend on who else has them.
    """
    total = {MEMORY: 0.0, DESCRIPTORS: 0.0, THREADS: 0.0}
    for pid in pids:
        process = Path("/proc", str(pid))
        try:
            memory = kib(process / "smaps_rollup", "Pss_Anon:") / 1024
            descriptors, threads = len(os.listdir(process / "fd")), len(os.listdir(process / "task"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        for name, value in ((MEMORY, memory), (DESCRIPTORS, descriptors), (THREADS, threads)):
            total[name] += value
    return total


def kib(file: Path, name: str) -> int:
    """Return the number in the line of a file of proc(5) that begins with the name."""
    (line,) = [line for line in file.read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1])


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of processes that run, and of their children that have ended."""
    return sum(sum(own_and_childrens_seconds(pid)) for pid in pids)


def own_and_childrens_seconds(pid: int) -> tuple[float, float]:
    """Of CPU: a process's own, and those of its children that have ended; none of one that has ended itself."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0.0
    ticks = list(map(int, fields[11:15]))
    return sum(ticks[:2]) / os.sysconf("SC_CLK_TCK"), sum(ticks[2:]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """Process of this machine, when `processes` saw it."""

    pid: int
    parent: int
    name: str
    arguments: Sequence[str] = ()


def processes() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            before, _, after = (folder / "stat").read_text().rpartition(")")
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            yield Process(int(folder.name), int(after.split()[1]), before.partition("(")[2], words)


def family(root: int) -> dict[int, Process]:
    """All processes that descend from one, by process id."""
    known = {each.pid: each for each in processes()}
    found: dict[int, Process] = {}
    new = {root}
    while new:
        new = {pid for pid, each in known.items() if each.parent in new}
        found |= {pid: known[pid] for pid in new}
    return found


def files_in(folder: Path) -> Mapping[str, float]:
    """How many files there are below a folder, and their MiB."""
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.lstat(os.path.join(place, name)).st_size)
            except FileNotFoundError:
                continue
    return {FILES: float(len(sizes)), SIZE: sum(sizes) / MIB}
