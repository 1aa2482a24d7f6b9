"""Run random lifetimes of a query through the planner (`make model`): no row is lost or there twice without an error.

python -m tests.rigs.planner_model [--lifetimes 20000] [--seed N] [--only NUMBER ...]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from rich.console import Console

from tests.rigs.planner_model.lifetime import Lifetime


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.planner_model", description=__doc__)
    parser.add_argument("--lifetimes", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--only", nargs="*", type=int, help="numbers of lifetimes, which are shown; else all are run")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True, markup=False)
    numbers = arguments.only or range(1, arguments.lifetimes + 1)
    console.print(f"{len(numbers)} lifetimes, seed {arguments.seed}")
    counts: Counter[str] = Counter()
    failed, begun = [], time.monotonic()
    for number in numbers:
        lifetime = Lifetime(f"{arguments.seed}-{number}").run()
        counts += lifetime.counts
        if lifetime.faults:
            failed.append(number)
            console.print(f"{number}: {'; '.join(lifetime.faults)}")
        if arguments.only:
            console.print("\n".join(lifetime.events))
    for name, count in sorted(counts.items()):
        console.print(f"{count:9,} {name}")
    seconds = time.monotonic() - begun
    console.print(f"seed {arguments.seed}: {len(failed)} of {len(numbers)} lifetimes failed, {seconds:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
