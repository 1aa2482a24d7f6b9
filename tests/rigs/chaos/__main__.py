"""`make chaos`: faults of every kind strike queries on a real stack, and every record is counted after each.

python -m tests.rigs.chaos [--minutes 30] [--seed N] [--kind KIND ...] [--alone]
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time

from tests.rigs.chaos.faults import LASTING, PASSING, STALLS
from tests.rigs.chaos.rig import LOCAL, WITHOUT_RETRIES, Rig
from tests.rigs.chaos.rounds import Rounds, console
from tests.rigs.stack.build import ROOT, build_folder


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    kinds = sorted({fault.kind for fault in (*PASSING, *STALLS, *LASTING)})
    parser.add_argument("--kind", action="append", choices=kinds, default=[], help="one that strikes; else all do")
    stalls = "stalls of the storage that are longer than its timeouts, and only queries that no broker helps"
    parser.add_argument("--alone", action="store_true", help=stalls)
    arguments = parser.parse_args()
    console.print(f"chaos for {arguments.minutes:g} minutes, seed {arguments.seed}")
    with build_folder("chaos") as folder:
        with Rig(folder, WITHOUT_RETRIES if arguments.alone else LOCAL) as rig:
            rounds = Rounds(rig, arguments.seed, arguments.kind, alone=arguments.alone)
            numbers, begin = itertools.count(1), time.monotonic()
            while time.monotonic() - begin < arguments.minutes * 60:
                rounds.play(next(numbers))
        tally = rounds.tally
        tally.write(ROOT / "build" / "chaos.json", (time.monotonic() - begin) / 60)
    console.print(tally.table())
    console.print(f"seed {tally.seed}: {tally.faults} faults, {tally.tables} tables, {len(tally.failures)} failures")
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
