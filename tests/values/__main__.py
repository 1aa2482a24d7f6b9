"""`python -m tests.values` asks Spark's own `kafka` source about new cases, or `--all`, and writes its answers down."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any

from pyspark.sql import SparkSession

from tests.rigs.stack.build import build_folder
from tests.rigs.stack.spark import spark_session
from tests.rigs.stack.tiered_stack import TieredStack
from tests.values.asking import create_topic, sparks_answer
from tests.values.cases import KINDS, Case, read_cases, write_cases


def asked(spark: SparkSession, brokers: Mapping[str, str], cases: Sequence[Case]) -> list[Case]:
    """The cases with the answers of Spark's own source; four queries run at once."""

    def ask(case: Case) -> Case:
        options = {**brokers, **case.options()}
        answers: dict[str, Any] = {kind: sparks_answer(spark, options, kind) for kind in KINDS}
        return replace(case, **answers)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(ask, cases))


def main(only_new: bool) -> None:
    cases = read_cases()
    wanted = [case for case in cases if not (only_new and case.batch and case.stream)]
    answered: dict[str, Case] = {}
    with build_folder("values") as folder, TieredStack(folder / "stack") as stack:
        spark = spark_session("values", ("spark-kafka",))
        brokers = create_topic(stack)
        remaining = iter(wanted)
        while some := list(islice(remaining, 40)):
            answered |= {str(case): case for case in asked(spark, brokers, some)}
            write_cases(answered.get(str(case), case) for case in cases)
            print(f"{len(answered)} of {len(wanted)} cases", flush=True)
        spark.stop()


if __name__ == "__main__":
    main("--all" not in sys.argv)
