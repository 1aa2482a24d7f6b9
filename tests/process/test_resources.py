"""How many cores and how much memory a process may use, by control groups that a test lays out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tiered_stream.process.resources import free_memory, usable_cores
from tiered_stream.read import scanner


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))


def root_with(folder: Path, groups: str, files: Mapping[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


def v1(group: str, quota: int, period: int = 100_000) -> dict[str, str]:
    return {f"sys/fs/cgroup/{group}/cpu.cfs_{name}_us": str(at) for name, at in (("quota", quota), ("period", period))}


@pytest.mark.parametrize(
    "groups,files,cores",
    [
        ("0::/", {}, 8),
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, 8),
        ("0::/", {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        ("0::/", {"sys/fs/cgroup/cpu.max": "150000 100000"}, 2),
        ("0::/", {"sys/fs/cgroup/cpu.max": "10000 100000"}, 1),
        ("0::/", {"sys/fs/cgroup/cpu.max": "6400000 100000"}, 8),
        ("0::/", {"sys/fs/cgroup/cpu.max": "nonsense"}, 8),
        ("0::/a.slice/b", {"sys/fs/cgroup/a.slice/cpu.max": "300000 100000"}, 3),
        ("0::/on/the/host", {"sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        ("4:memory:/m\n1:cpu,cpuacct:/docker/1\n0::/", v1("cpu,cpuacct", 200_000), 2),
        ("2:cpuacct:/\n1:cpu:/pod/1\n0::/", v1("cpu/pod/1", 100_000, 50_000), 2),
        ("1:cpu:/", v1("cpu", -1), 8),
        ("3:cpuset:/", v1("cpuset", 100_000), 8),
    ],
)
def test_a_containers_cpu_quota_counts(tmp_path: Path, groups: str, files: dict[str, str], cores: int) -> None:
    assert usable_cores(root_with(tmp_path, groups, files)) == cores


def test_without_control_groups_all_cores_are_usable(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 8


def test_a_scan_reads_as_many_splits_at_once_as_it_may_use_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.archives import PLAIN, archive_options

    asked: list[int] = []

    class Ahead(scanner._ThreadedReader):
        def __init__(self, splits: object, read: object, threads: int, most: int) -> None:
            asked.append(threads)
            super().__init__(splits, read, threads, most)  # type: ignore[arg-type]

    monkeypatch.setattr(scanner, "_ThreadedReader", Ahead)
    monkeypatch.setattr(scanner, "usable_cores", lambda: 3)
    scanner.scan(archive_options(PLAIN))
    assert asked == [3]


MACHINE = {"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:     500 kB"}


def _group(folder: str, names: tuple[str, str, str], most: str) -> dict[str, str]:
    limit, used, prefix = names
    pages = f"anon 1\n{prefix}inactive_file 60000\n{prefix}active_file 40000"
    files = {limit: most, used: "300000", "memory.stat": pages}
    return {f"sys/fs/cgroup/{folder}{name}": text for name, text in files.items()}


V2 = ("memory.max", "memory.current", "")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        ("0::/", MACHINE, 512_000),
        ("0::/", {**MACHINE, **_group("", V2, "400000")}, 200_000),
        ("0::/", {**MACHINE, **_group("", V2, "max")}, 512_000),
        ("0::/", {**MACHINE, **_group("", V2, "100000")}, 0),
        ("0::/a/b", {**MACHINE, **_group("a/", V2, "400000")}, 200_000),
        ("1:memory:/pod", {**MACHINE, **_group("memory/pod/", V1, "400000")}, 200_000),
        ("1:cpu:/pod", {**MACHINE, **_group("cpu/pod/", V1, "400000")}, 512_000),
        ("0::/", {}, None),
    ],
)
def test_the_memory_of_the_machine_and_of_its_container_counts(
    tmp_path: Path, groups: str, files: Mapping[str, str], free: int | None
) -> None:
    assert free_memory(root_with(tmp_path, groups, files)) == free


def test_this_machine_has_memory_left() -> None:
    assert free_memory()
