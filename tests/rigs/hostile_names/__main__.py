"""Hostile names through Spark's catalog: `python -m tests.rigs.hostile_names [--cases 150] [--seed N]`.

One session runs all jobs. Prints how often each step was done or refused, and fails if anything is wrong.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.rigs.histories import arguments, console, run_all
from tests.rigs.hostile_names.drawing import draw
from tests.rigs.hostile_names.execution import HostileNames
from tests.rigs.stack.spark import FEW_ROWS, SHORT_LIVED, spark_session

SETTINGS = {**FEW_ROWS, **SHORT_LIVED}


def main() -> None:
    given = arguments("tests.rigs.hostile_names", __doc__, "cases", 150).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        console.file = os.fdopen(os.dup(1), "w")
        with output.open("wb") as file:  # what Spark and its Python processes print
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        printed = output.open("rb")
        spark = spark_session(
            "hostile names", ("delta",), {**SETTINGS, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        )
        rig = HostileNames(spark, Path(folder) / "root")

        def run(name: str) -> list[str]:
            job, before = draw(Random(name)), len(rig.problems)
            rig.run(job, name)
            rig.check_text(f"{name}: printed", printed.read().decode("utf-8", "replace"))
            if given.only:
                console.print("\n".join(rig.reasons))
            return [f"{problem}\n  {job}" for problem in rig.problems[before:]]

        failed = run_all(given, run, rig.counts)
        spark.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
