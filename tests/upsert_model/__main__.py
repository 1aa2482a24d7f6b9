"""Run random histories of change records (`make model`): after each run of the query, the table is the model's map.

python -m tests.upsert_model [--histories 500] [--seed N] [--only NUMBER ...]
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console

from tests.stack.build import build_folder
from tests.stack.spark import spark_session
from tests.upsert_model.execution import Execution, Session
from tests.upsert_model.history import draw_history

PLANNED_SOON = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For a MERGE of a few rows, Spark takes longer to plan, generate and compile than to interpret the plan."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.upsert_model", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--only", nargs="*", type=int, help="numbers of histories; else all are run")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True, markup=False)
    logging.disable(logging.WARNING)
    numbers = arguments.only or range(1, arguments.histories + 1)
    console.print(f"{len(numbers)} histories, seed {arguments.seed}")
    failed = []
    spark = spark_session("upsert model", ("delta",), PLANNED_SOON)
    session = Session(spark)
    with build_folder("upsert-model") as folder, session.installed():
        for number in numbers:
            place, begun = Path(folder) / str(number), time.monotonic()
            found = Execution(session, draw_history(f"{arguments.seed}-{number}"), place).run()
            for text in found:
                console.print(text)
            console.print(f"{number}: {time.monotonic() - begun:.1f} s{', FAILED' if found else ''}")
            if found:
                failed.append(number)
            shutil.rmtree(place, ignore_errors=True)
    spark.stop()
    console.print(f"seed {arguments.seed}: {len(failed)} of {len(numbers)} histories failed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
