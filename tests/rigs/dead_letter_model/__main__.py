"""Run random histories with dead letters (`make model`): land, redrive and replay, and kill the driver on the way.

At every end each offset is exactly once in its table or in the table for dead letters.

python -m tests.rigs.dead_letter_model [--histories 300] [--seed N] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
from collections import Counter
from contextlib import nullcontext

from pyspark.sql import SparkSession
from rich.console import Console

from tests.rigs.dead_letter_model.driver import start_session
from tests.rigs.dead_letter_model.events import Lives
from tests.rigs.dead_letter_model.execution import execute
from tests.rigs.dead_letter_model.generator import draw_history
from tests.rigs.dead_letter_model.without_spark import Session
from tests.rigs.stack.build import build_folder


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.dead_letter_model", description=__doc__)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--without-spark", action="store_true", help="the direct lane alone, without a JVM")
    parser.add_argument("--only", nargs="*", type=int, help="numbers of histories; else all are run")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True, markup=False)
    logging.getLogger("tiered_stream").setLevel(logging.CRITICAL)
    logging.disable(logging.WARNING)
    numbers = arguments.only or range(1, arguments.histories + 1)
    console.print(f"{len(numbers)} histories, seed {arguments.seed}")
    counts: Counter[str] = Counter()
    failed = []
    session = Session() if arguments.without_spark else None
    with build_folder("dead-letter-model") as folder, session.installed() if session else nullcontext():
        spark = session or start_session()
        lives = Lives()
        with lives.watched():
            for number in numbers:
                history = draw_history(f"{arguments.seed}-{number}", with_spark=session is None)
                place = folder / history.name
                told = execute(spark, lives, history, place)
                counts += told.counts
                if told.faults or arguments.only:
                    console.print(f"{told}\n")
                if told.faults:
                    failed.append(history.name)
                else:
                    shutil.rmtree(place)
                if told.faults or session is None:
                    console.print(f"{history.name}: {told.seconds:.1f} s{', FAILED' if told.faults else ''}")
        if isinstance(spark, SparkSession):
            spark.stop()
    for name, count in sorted(counts.items()):
        console.print(f"{count:6} {name}")
    console.print(f"seed {arguments.seed}: {len(failed)} of {len(numbers)} histories failed: {' '.join(failed)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
