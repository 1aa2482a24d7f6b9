"""Marks of a soak by micro-batches: what each kind of process and each folder holds, when so many are done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tests.rigs.soak.held import DESCRIPTORS, FILES, MEMORY, MIB, SIZE, THREADS, Process, family, files_in, held_by
from tests.rigs.soak.ways import Way
from tests.rigs.sockets import inodes

SHARES = (0.01, 0.1, 0.5, 1.0)
DRIVER, PLANNER, SERVER, WORKERS, JVM = "driver's Python", "planner", "fork server", "Python workers", "JVM"
HEAP, OTHER = "JVM heap after a collection, MiB", "JVM metaspace and code, MiB"
SOCKETS, TEMPORARY = "sockets", "temporary files"
CHECKPOINT, TABLE_LOGS, TABLES = "checkpoint", "logs of the tables", "data files of the tables"
BATCHES, SECONDS = "micro-batches", "seconds for each micro-batch since the last mark"
_FORK_SERVER = "tiered_stream.pythons.fork_server"


def kinds(driver: int, processes: Collection[Process]) -> dict[str, list[int]]:
    """Return the ids of the processes by kind.

    The fork server's forks keep its command line. A fork with children is the daemon of the tasks' workers, and the
    others plan. The clients that wait for a fork's end are no Python of their own, and are left out.
    """
    servers = {each.pid for each in processes if _FORK_SERVER in each.arguments}
    parents = {each.parent for each in processes}
    first = {each.pid for each in processes if each.pid in servers and each.parent not in servers}
    forks = {each.pid for each in processes if each.parent in first}
    planners = forks - parents
    return {
        DRIVER: [driver],
        PLANNER: sorted(planners),
        SERVER: sorted(first),
        WORKERS: sorted((servers - first - planners) | _below(forks & parents, processes)),
        JVM: [each.pid for each in processes if each.name == "java"],
    }


def _below(roots: Collection[int], processes: Collection[Process]) -> set[int]:
    return {each.pid for each in processes if each.parent in roots}


def sockets_of(pids: Collection[int]) -> int:
    return sum(1 for pid in pids for _ in inodes(pid))


def figures(driver: int, way: Way, temporary: Path, jvm: Mapping[str, int]) -> dict[str, float]:
    """Return what is held now; `jvm` is what the JVM uses (`used_by_jvm`)."""
    found: dict[str, float] = {}
    processes = kinds(driver, family(driver).values())
    for kind, pids in processes.items():
        held = held_by(pids)
        found |= {f"{kind}: {name}": held[name] for name in (MEMORY, THREADS, DESCRIPTORS)}
    found[SOCKETS] = float(sockets_of([pid for pids in processes.values() for pid in pids]))
    found |= {HEAP: jvm["heap"] / MIB, OTHER: jvm["other"] / MIB}
    logs = [files_in(table / "_delta_log") for table in way.tables()]
    tables = [files_in(table) for table in way.tables()]
    for name in (FILES, SIZE):
        found[f"{TEMPORARY}: {name}"] = files_in(temporary)[name]
        found[f"{CHECKPOINT}: {name}"] = files_in(way.checkpoint)[name]
        found[f"{TABLE_LOGS}: {name}"] = sum(log[name] for log in logs)
        found[f"{TABLES}: {name}"] = sum(table[name] for table in tables) - found[f"{TABLE_LOGS}: {name}"]
    return found


def report(title: str, marks: Sequence[Mapping[str, float]]) -> str:
    """Return a Markdown table: a row for each figure, a column for each mark."""
    lines = [
        f"| {title} | {' | '.join(f'{mark[BATCHES]:,.0f}' for mark in marks)} |",
        f"|---|{'---:|' * len(marks)}",
    ]
    for name in marks[-1]:
        if name != BATCHES:
            digits = 3 if name == SECONDS else 2 if name == f"{CHECKPOINT}: {SIZE}" else 1 if SIZE in name else 0
            cells = (f"{mark[name]:,.{digits}f}" for mark in marks)
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
