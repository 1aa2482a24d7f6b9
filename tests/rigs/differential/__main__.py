"""`make differential`: random settings over random topics, by Spark's own `kafka` source and by ours.

Both have to give the same rows, micro-batches that end alike, or errors of the same name.

python -m tests.rigs.differential [--settings 300] [--seed N]
"""

from __future__ import annotations

import argparse
import logging
import random
import sys

from rich.console import Console

from tests.rigs.differential.comparison import Comparison
from tests.rigs.differential.topics import LONG_TRANSACTIONS
from tests.rigs.stack.build import build_folder
from tests.rigs.stack.spark import spark_session
from tests.rigs.stack.tiered_stack import TieredStack


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.differential", description=__doc__)
    parser.add_argument("--settings", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    logging.getLogger("tiered_stream").setLevel(logging.ERROR)
    console.print(f"{arguments.settings} settings, seed {arguments.seed}")
    with build_folder("differential") as folder, TieredStack(folder / "stack", properties=LONG_TRANSACTIONS) as stack:
        spark = spark_session("differential", config={"spark.log.level": "OFF"})
        comparison = Comparison(spark, stack, folder, arguments.seed)
        found = comparison.run(arguments.settings, console.print)
        spark.stop()
    tally = comparison.tally
    console.print(f"seed {arguments.seed}: {tally}, {len(found)} differences")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
