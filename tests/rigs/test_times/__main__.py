"""Print where the time and the CPU of a measured test run went, as tables of Markdown."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TOP = 40


def main(folder: Path, top: int = TOP) -> None:
    lines = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    phases = [line for line in lines if line["kind"] in ("setup", "call", "teardown")]
    for stack in (False, True):
        chosen = [line for line in phases if line["stack"] is stack]
        tests = {line["test"] for line in chosen}
        took = f"{_sum(chosen, 'seconds'):.0f} s, {_sum(chosen, 'cpu'):.0f} core seconds"
        print(f"\n## {'With' if stack else 'Without'} services: {len(tests)} tests, {took}\n")
        for what in ("seconds", "cpu"):
            unit = "s" if what == "seconds" else "core seconds"
            _table("folder", _by(chosen, what, lambda test: "/".join(test.split("::")[0].split("/")[:2])), top, unit)
            _table("file", _by(chosen, what, lambda test: test.split("::")[0]), top, unit)
            _table("test", _by(chosen, what, lambda test: test), top, unit)
    fixtures: dict[str, float] = defaultdict(float)
    for line in lines:
        if line["kind"] == "fixture":
            fixtures[line["fixture"]] += line["seconds"]
    _table("fixture", fixtures, top)


def _sum(lines: Iterable[dict[str, Any]], what: str) -> float:
    return math.fsum(line[what] for line in lines)


def _by(lines: Iterable[dict[str, Any]], what: str, key: Callable[[str], str]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for line in lines:
        seconds[key(line["test"])] += line[what]
    return seconds


def _table(title: str, seconds: dict[str, float], top: int, unit: str = "s") -> None:
    print(f"| {title} | {unit} |\n|---|---:|")
    for name, took in sorted(seconds.items(), key=lambda each: -each[1])[:top]:
        print(f"| {name} | {took:.1f} |")
    print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
