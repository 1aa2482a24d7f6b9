"""How much memory a process can still take, by control groups that a test lays out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.process.test_cores import root_with
from tiered_stream.process.free_memory import free_memory

MACHINE = {"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:     500 kB"}


def _group(folder: str, names: tuple[str, str, str], most: str) -> dict[str, str]:
    limit, used, droppable = names
    files = {limit: most, used: "300000", "memory.stat": f"anon 1\n{droppable} 100000"}
    return {f"sys/fs/cgroup/{folder}{name}": text for name, text in files.items()}


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


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
