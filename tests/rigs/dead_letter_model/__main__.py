"""Run random histories with dead letters (`make model`): land, redrive and replay, and kill the driver on the way.

At every end each offset is exactly once in its table or in the table for dead letters.
python -m tests.rigs.dead_letter_model [--histories 300] [--seed N] [--only NUMBER ...]
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections import Counter
from contextlib import nullcontext

from pyspark.sql import SparkSession

from tests.rigs.dead_letter_model.driver import start_session
from tests.rigs.dead_letter_model.events import Lives
from tests.rigs.dead_letter_model.execution import execute
from tests.rigs.dead_letter_model.generator import draw_history
from tests.rigs.dead_letter_model.without_spark import Session
from tests.rigs.histories import arguments, console, run_all
from tests.rigs.stack.build import build_folder


def main() -> None:
    parser = arguments("tests.rigs.dead_letter_model", __doc__, "histories", 300)
    parser.add_argument("--without-spark", action="store_true", help="the direct lane alone, without a JVM")
    given = parser.parse_args()
    logging.getLogger("tiered_stream").setLevel(logging.CRITICAL)
    logging.disable(logging.WARNING)
    counts: Counter[str] = Counter()
    session = Session() if given.without_spark else None
    with build_folder("dead-letter-model") as folder, session.installed() if session else nullcontext():
        spark, lives = session or start_session(), Lives()

        def run(name: str) -> list[str]:
            told = execute(spark, lives, draw_history(name, with_spark=session is None), folder / name)
            counts.update(told.counts)
            if told.faults or given.only:
                console.print(f"{told}\n")
            if not told.faults:
                shutil.rmtree(folder / name)
            return told.faults

        with lives.watched():
            failed = run_all(given, run, counts)
        if isinstance(spark, SparkSession):
            spark.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
