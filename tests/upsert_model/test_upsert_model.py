"""A few random histories of `python -m tests.upsert_model`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.upsert_model.execution import Execution, Session
from tests.upsert_model.history import draw_history


@pytest.mark.stack
@pytest.mark.parametrize(
    ("histories", "seed"), [(4, 1), pytest.param(500, random.randrange(10_000), marks=pytest.mark.slow, id="500")]
)
def test_the_table_is_the_models_map_after_each_run_of_a_random_history(
    spark: SparkSession, tmp_path: Path, histories: int, seed: int
) -> None:
    session = Session(spark)
    with session.installed():
        for number in range(1, histories + 1):
            assert not Execution(session, draw_history(f"{seed}-{number}"), tmp_path / str(number)).run()


def test_a_name_gives_the_same_history_each_time() -> None:
    assert draw_history("1-7") == draw_history("1-7")
