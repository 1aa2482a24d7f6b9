"""Whose core seconds a run takes: by what the processes below this one have used (Linux: `proc_pid_stat(5)`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PYTHON, JVM, S3, BROKER, JOBS = "Python", "Spark's JVM", "S3 server", "broker", "jobs"
_SERVICES = {"org.gaul.s3proxy.Main": S3, "kafka.Kafka": BROKER}
_PROGRAMS = {"java": JVM, "versitygw": S3}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """Of a process: core seconds of its own, and those of its children that have ended."""

    pid: int
    parent: int
    own: float
    ended_children: float


def parse_stat(text: str) -> ProcessTimes:
    """One `/proc/PID/stat`. The command, the second field, is in brackets and may hold blanks and brackets."""
    pid, _, rest = text.partition(" ")
    # state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime …
    fields = rest[rest.rindex(")") + 2 :].split()
    user, system, children_user, children_system = (int(each) / _TICKS for each in fields[11:15])
    return ProcessTimes(int(pid), int(fields[1]), user + system, children_user + children_system)


def kind_of(command: str) -> str:
    """What a process is to a run, by its command line."""
    words = command.split(" ")
    services = [kind for main_class, kind in _SERVICES.items() if main_class in words]
    return services[0] if services else _PROGRAMS.get(os.path.basename(words[0]), PYTHON)


def core_seconds() -> dict[str, float]:
    """What this process and all below it have used until now, by kind; jobs count when they have ended."""
    spent = dict.fromkeys((PYTHON, JVM, S3, BROKER, JOBS), 0.0)
    for each in _below(os.getpid()):
        spent[_kind(each.pid)] += each.own
        spent[JOBS if each.pid == os.getpid() else PYTHON] += each.ended_children
    return spent


def since(before: Mapping[str, float]) -> dict[str, float]:
    """What was used since `core_seconds` gave `before`."""
    return {kind: spent - before[kind] for kind, spent in core_seconds().items()}


def _below(root: int) -> Iterator[ProcessTimes]:
    children: dict[int, list[ProcessTimes]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            found = parse_stat(file.read_text())
        except OSError:  # it has ended
            continue
        children.setdefault(found.parent, []).append(found)
        if found.pid == root:
            yield found
    waiting = children.get(root, [])
    while waiting:
        yield (each := waiting.pop())
        waiting += children.get(each.pid, [])


def _kind(pid: int) -> str:
    try:
        return kind_of(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    except OSError:
        return PYTHON
