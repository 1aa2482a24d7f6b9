"""`make soak`: kills a landing query at random, again and again, and counts every record in the end.

python -m tests.delta.soak [KILLS] [SEED]
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.delta.archive import LONG, ODD, everything, landed
from tests.delta.driver import POINTS, WORKERS, Run
from tests.stack.build import build_folder

TOPICS = f"{LONG},{ODD}"
LIMIT = 150
"""Offsets of a micro-batch: small, for a run is to be killed often before all is landed."""

console = Console(highlight=False, soft_wrap=True)


def soak(folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kill the query `kills` times, then let it come to its end; how often it was killed where.

    Raises:
        AssertionError: a record is missing, doubled or different.
    """
    chance = random.Random(seed)
    table, log = folder / "table", folder / "log"
    run = Run(str(table), str(folder / "checkpoint"), TOPICS, LIMIT)
    done: Counter[str] = Counter()
    while done.total() < kills:
        point = chance.choice([*POINTS, *POINTS, WORKERS])
        ended = replace(run, point=point, batch=chance.randint(1, 3)).execute(log)
        assert ended != 0, "everything has landed already: lower LIMIT"
        # Without its planning worker, the query fails before its driver dies.
        assert ended == -signal.SIGKILL or point == WORKERS, log.read_text()[-4000:]
        done[point] += 1
        console.print(f"{done.total():3}  {point}")
    assert run.execute(log) == 0, log.read_text()[-4000:]
    assert landed(table).equals(everything(TOPICS))
    return done


def main() -> None:
    kills, seed = (int(text) for text in (sys.argv[1:] + ["30", "1"][len(sys.argv) - 1 :]))
    console.print(f"{kills} kills, seed {seed}")
    with build_folder("soak") as folder:
        done = soak(folder, kills, seed)
    console.print(f"{done.total()} kills: {dict(done)}")
    console.print(f"{everything(TOPICS).num_rows:,} records landed, each once")


if __name__ == "__main__":
    main()
