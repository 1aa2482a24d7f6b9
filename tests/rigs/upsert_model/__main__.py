"""Run random histories of change records (`make model`): after each run of the query, the table is the model's map.

python -m tests.rigs.upsert_model [--histories 500] [--seed N] [--only NUMBER ...] [--engine deltalake|spark]
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import time
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from tests.rigs.stack.build import build_folder
from tests.rigs.stack.spark import spark_session
from tests.rigs.upsert_model.execution import Execution, registry_of_histories
from tests.rigs.upsert_model.history import draw_history

PLANNED_SOON = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For a MERGE of a few rows, Spark takes longer to plan, generate and compile than to interpret the plan."""


@cache
def _spark() -> SparkSession:
    return spark_session("upsert model", ("delta",), PLANNED_SOON)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.upsert_model", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--only", nargs="*", type=int, help="numbers of histories; else all are run")
    parser.add_argument("--engine", choices=["deltalake", "spark"], help="only histories of this engine")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True, markup=False)
    logging.disable(logging.WARNING)
    numbers = arguments.only or range(1, arguments.histories + 1)
    histories = [draw_history(f"{arguments.seed}-{number}") for number in numbers]
    if arguments.engine:
        histories = [each for each in histories if each.needs_spark == (arguments.engine == "spark")]
    console.print(f"{len(histories)} histories, seed {arguments.seed}")
    failed = []
    with build_folder(f"upsert-model-{arguments.seed}") as folder, registry_of_histories() as registry:
        for history in histories:
            place, begun = Path(folder) / history.name, time.monotonic()
            try:
                found = Execution(history, place, registry, _spark).run()
            except Exception as error:  # noqa: BLE001 - it is a fault that is found, whatever it is
                found = [f"{history.name}: {type(error).__name__}: {error}"]
            for text in found:
                console.print(text)
            console.print(f"{history.number}: {time.monotonic() - begun:.1f} s{', FAILED' if found else ''}")
            if found:
                failed.append(history.number)
            shutil.rmtree(place, ignore_errors=True)
    if _spark.cache_info().currsize:
        _spark().stop()
    console.print(f"seed {arguments.seed}: {len(failed)} of {len(histories)} histories failed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
