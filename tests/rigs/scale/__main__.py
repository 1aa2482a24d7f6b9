"""`make scale`: how the driver's seconds and memory grow with segments, partitions, tasks, files, topics and versions.

python -m tests.rigs.scale [--scale 0.01] [--only NAME]: each part runs in a process of its own, and becomes a Markdown
table. `SCALE` shrinks all parts. A part that misses its goal is marked, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from tests.rigs.scale.measured import Step
from tests.rigs.stack.build import ROOT, build_folder

FIGURES = ROOT / "build" / "scale.json"

console = Console(highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Part:
    """Process that measures one part; its arguments are SCALE, `arguments` and a folder of `name`, if `folder`."""

    name: str
    module: str
    arguments: Sequence[str] = ()
    folder: str = ""


PARTS = (
    Part("segments", "segments", ("100", "0"), "segments"),
    Part("restart", "segments", ("100", "0"), "segments"),
    Part("foreign", "segments", ("1", "10"), "foreign"),
    Part("both", "segments", ("100", "10"), "both"),
    Part("partitions", "segments", ("10000", "0"), "partitions"),
    Part("partitions-restart", "segments", ("10000", "0"), "partitions"),
    Part("archive", "archive", ("100",)),
    Part("tasks", "tasks", (), "tasks"),
    Part("topics", "topics", (), "topics"),
    Part("tables", "tables", (), "tables"),
)
"""In this order: a restart continues from the snapshots of the part before."""


def measure(part: Part, scale: float, folder: Path) -> list[Step]:
    arguments = [str(scale), *part.arguments]
    if part.folder:
        (folder / part.folder).mkdir(exist_ok=True)
        arguments.append(str(folder / part.folder))
    command = [sys.executable, "-m", f"tests.rigs.scale.{part.module}", *arguments]
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return [Step(**each) for each in json.loads(found.stdout)]


def report(steps: Sequence[Step]) -> str:
    """Return a Markdown table of one part's steps."""
    lines = [
        f"| {steps[0].part} | CPU seconds | MiB held | MiB at most | for each | microseconds | bytes |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    for step in steps:
        cells = [step.name, f"{step.seconds:,.3f}", f"{step.held:,.0f}", f"{step.peak:,.0f}", step.unit]
        cells += [_with_goal(step.microseconds, step.may_take, 2), _with_goal(step.bytes, step.may_hold, 0)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _with_goal(figure: float | None, goal: float | None, digits: int) -> str:
    if figure is None:
        return ""
    text = f"{figure:,.{digits}f}"
    return text if goal is None or figure <= goal else f"{text} ✗ (at most {goal:g})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.scale")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", action="append", choices=[part.name for part in PARTS])
    given = parser.parse_args()
    measured: dict[str, list[Step]] = {}
    with build_folder("scale") as folder:
        for part in PARTS:
            if not given.only or part.name in given.only:
                measured[part.name] = measure(part, given.scale, folder)
                console.print(f"\n{report(measured[part.name])}")
    FIGURES.write_text(json.dumps({name: list(map(asdict, steps)) for name, steps in measured.items()}, indent=2))
    if missed := [f"{name}: {step.name}" for name, steps in measured.items() for step in steps if step.missed]:
        console.print(f"\nover the goal: {', '.join(missed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
