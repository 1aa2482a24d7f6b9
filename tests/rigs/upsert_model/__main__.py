"""Run random histories of change records (`make model`): after each run of the query, the table is the model's map.

python -m tests.rigs.upsert_model [--histories 500] [--seed N] [--only NUMBER ...] [--engine deltalake|spark]
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections import Counter
from functools import cache

from pyspark.sql import SparkSession

from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.histories import arguments, run_all
from tests.rigs.stack.build import build_folder
from tests.rigs.stack.spark import FEW_ROWS, spark_session
from tests.rigs.upsert_model.execution import Execution
from tests.rigs.upsert_model.history import draw_history


@cache
def _spark() -> SparkSession:
    return spark_session("upsert model", ("delta",), FEW_ROWS)


def main() -> None:
    parser = arguments("tests.rigs.upsert_model", __doc__, "histories", 500)
    parser.add_argument("--engine", choices=["deltalake", "spark"], help="only histories of this engine")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    counts: Counter[str] = Counter()
    with build_folder(f"upsert-model-{given.seed}") as folder, ScriptedRegistry() as registry:

        def run(name: str) -> list[str]:
            history, place = draw_history(name), folder / name
            engine = "spark" if history.needs_spark else "deltalake"
            if given.engine not in (None, engine):
                return []
            counts[engine] += 1
            try:
                return Execution(history, place, registry, _spark).run()
            except Exception as error:  # noqa: BLE001 - it is a fault that is found, whatever it is
                return [f"{name}: {type(error).__name__}: {error}"]
            finally:
                shutil.rmtree(place, ignore_errors=True)

        failed = run_all(given, run, counts)
    if _spark.cache_info().currsize:
        _spark().stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
