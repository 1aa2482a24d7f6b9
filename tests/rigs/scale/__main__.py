"""`make scale`: how the driver's seconds and memory grow with segments, partitions, tasks, files, topics and versions.

python -m tests.rigs.scale [--scale 0.01] [--only NAME]: each part runs in a process of its own, and becomes a Markdown
table. `SCALE` shrinks all parts. A part that misses its goal is marked, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from tests.rigs.scale.measured import Step, steps_of
from tests.rigs.stack.build import ROOT, build_folder

FIGURES = ROOT / "build" / "scale.json"

console = Console(highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Part:
    """Process that measures one part, by `measure` of the module; a part with the `folder` of another continues it."""

    name: str
    module: str
    arguments: Sequence[float] = ()
    folder: str = ""


PARTS = (
    Part("segments", "segments", (100, 0)),
    Part("restart", "segments", (100, 0), "segments"),
    Part("foreign", "segments", (1, 10)),
    Part("both", "segments", (100, 10)),
    Part("partitions", "segments", (10_000, 0)),
    Part("partitions-restart", "segments", (10_000, 0), "partitions"),
    Part("archive", "archive", (100,)),
    Part("tasks", "tasks"),
    Part("topics", "topics"),
    Part("tables", "tables"),
)
"""In this order: a restart continues from the snapshots of the part before."""


def measure(part: Part, scale: float, folder: Path) -> list[Step]:
    own = folder / (part.folder or part.name)
    own.mkdir(exist_ok=True)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(steps_of, part.module, scale, own, part.arguments).result()


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
