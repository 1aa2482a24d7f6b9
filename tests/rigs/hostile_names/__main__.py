"""Hostile names through Spark's catalog: `python -m tests.rigs.hostile_names [--cases 150] [--seed SEED]`.

One session runs all jobs. Prints how often each step was done or refused, and fails if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.rigs.hostile_names.drawing import draw
from tests.rigs.hostile_names.execution import HostileNames
from tests.rigs.stack.spark import FEW_ROWS, SHORT_LIVED, spark_session

SETTINGS = {
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    **FEW_ROWS, **SHORT_LIVED,
}  # fmt: skip
"""For a few rows, Spark takes longer to generate and compile code than to interpret the plan."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.hostile_names", description=__doc__)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cases")
    parser.add_argument("--reasons", action="store_true", help="print each refusal")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        output, terminal = Path(folder) / "output", os.dup(1)
        with output.open("wb") as file:  # what Spark and its Python processes print
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        spark = spark_session(
            "hostile names", ("delta",), {**SETTINGS, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        )
        rig, tell = HostileNames(spark, Path(folder) / "root"), os.fdopen(terminal, "w")
        begin, read, told = time.monotonic(), 0, 0
        for number in given.only or range(given.cases):
            job = draw(Random(f"{given.seed}/{number}"))
            rig.run(job, str(number))
            with output.open("rb") as file:
                file.seek(read)
                printed = file.read()
            read += len(printed)
            rig.check_text(f"{number}: printed", printed.decode("utf-8", "replace"))
            for problem in rig.problems[told:]:
                tell.write(f"{problem}\n  {job}\n")
            if given.reasons:
                tell.write("".join(f"{number}: {each}\n" for each in rig.reasons))
            rig.reasons.clear()
            tell.flush()
            told = len(rig.problems)
        spark.stop()
        tell.write(f"{number + 1} cases in {time.monotonic() - begin:.0f} s; {len(rig.problems)} problems\n")
        for step in sorted(rig.done | rig.refused):
            tell.write(f"{step}: done {rig.done[step]} times, refused {rig.refused[step]} times\n")
        tell.close()
    return 1 if rig.problems else 0


if __name__ == "__main__":
    sys.exit(main())
