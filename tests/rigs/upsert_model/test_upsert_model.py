"""A few random histories of `python -m tests.rigs.upsert_model`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.upsert_model.execution import Execution
from tests.rigs.upsert_model.history import Change, Form, State, draw_history


def _unneeded() -> SparkSession:
    raise AssertionError("a history of deltalake needs no Spark")


def test_the_table_of_deltalake_is_the_models_map_after_each_run_of_a_random_history(tmp_path: Path) -> None:
    histories = [each for number in range(1, 40) if not (each := draw_history(f"1-{number}")).needs_spark]
    with ScriptedRegistry() as registry:
        for history in histories[:12]:
            assert not Execution(history, tmp_path / history.name, registry, _unneeded).run()


@pytest.mark.slow
@pytest.mark.parametrize(("histories", "seed"), [(3, 1), pytest.param(20, random.randrange(10_000), id="20")])
def test_the_table_is_the_models_map_after_each_run_of_a_random_history(
    spark: SparkSession, tmp_path: Path, histories: int, seed: int
) -> None:
    with ScriptedRegistry() as registry:
        for number in range(1, histories + 1):
            history = draw_history(f"{seed}-{number}")
            assert not Execution(history, tmp_path / history.name, registry, lambda: spark).run()


def test_a_name_gives_the_same_history_each_time() -> None:
    assert draw_history("1-7") == draw_history("1-7")


def test_a_table_may_keep_either_of_two_records_that_are_ordered_alike_in_two_partitions() -> None:
    old, new, other = (Change(4, name, at) for name, at in (("old", 1), ("new", 2), (None, 2)))
    ties = State(Form.PLAIN, placed=True, ordered=True).ties([(0, 0, old), (0, 1, new), (1, 0, other)])[4]
    assert [row and row.values for row in ties] == [{"value": "new"}, None]


def test_the_offset_decides_which_of_two_records_of_one_partition_a_table_keeps() -> None:
    ties = State(Form.PLAIN, placed=True, ordered=True).ties([(0, 0, Change(4, "x", 2)), (0, 1, Change(4, "y", 2))])
    assert [row and row.values for row in ties[4]] == [{"value": "y"}]
