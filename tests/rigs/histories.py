"""Programs that run many random histories, each by its name, and count the histories that have faults."""

from __future__ import annotations

import argparse
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

console = Console(highlight=False, soft_wrap=True, markup=False)


def arguments(module: str, description: str | None, what: str, count: int) -> argparse.ArgumentParser:
    """Return a parser of the number of histories, which are called `what`, the seed, and numbers of single ones."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument(f"--{what}", dest="count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--only", nargs="*", type=int, help=f"numbers of {what}, which are shown; else all are run")
    return parser


def run_all(given: argparse.Namespace, run: Callable[[str], Sequence[str]], counts: Counter[str]) -> bool:
    """Run each history, and print its faults, which `run` returns. Return whether there are any."""
    numbers = given.only or range(1, given.count + 1)
    console.print(f"{len(numbers)} of seed {given.seed}")
    failed, begun = [], time.monotonic()
    for number in numbers:
        if faults := run(f"{given.seed}-{number}"):
            failed.append(number)
            console.print(f"{number} FAILED: {'; '.join(faults)}")
    for name, count in sorted(counts.items()):
        console.print(f"{count:9,} {name}")
    seconds = time.monotonic() - begun
    console.print(f"seed {given.seed}: {len(failed)} of {len(numbers)} failed, {seconds:.0f} s: {failed}")
    return bool(failed)


@contextmanager
def logged(name: str, level: int, lines: list[str]) -> Iterator[None]:
    """Add to `lines` what the logger gets at this level or above during the block."""
    logger = logging.getLogger(name)
    handler, before = logging.Handler(), logger.level
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
