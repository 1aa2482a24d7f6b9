"""Print where the time of a measured test run went, as tables of Markdown."""

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
        print(f"\n## {'With' if stack else 'Without'} services: {len(tests)} tests, {_sum(chosen):.0f} s\n")
        _table("cause", _causes(chosen), top)
        _table("folder", _by(chosen, lambda test: "/".join(test.split("::")[0].split("/")[:2])), top)
        _table("file", _by(chosen, lambda test: test.split("::")[0]), top)
        _table("test", _by(chosen, lambda test: test), top)
    fixtures: dict[str, float] = defaultdict(float)
    for line in lines:
        if line["kind"] == "fixture":
            fixtures[line["fixture"]] += line["seconds"]
    _table("fixture", fixtures, top)


def _sum(lines: Iterable[dict[str, Any]]) -> float:
    return math.fsum(line["seconds"] for line in lines)


def _causes(lines: Iterable[dict[str, Any]]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for line in lines:
        for cause, took in line["causes"].items():
            seconds[cause] += took
    return seconds


def _by(lines: Iterable[dict[str, Any]], key: Callable[[str], str]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for line in lines:
        seconds[key(line["test"])] += line["seconds"]
    return seconds


def _table(title: str, seconds: dict[str, float], top: int) -> None:
    print(f"| {title} | s |\n|---|---:|")
    for name, took in sorted(seconds.items(), key=lambda each: -each[1])[:top]:
        print(f"| {name} | {took:.1f} |")
    print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
