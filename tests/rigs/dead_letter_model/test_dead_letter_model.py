"""A few random histories of `make model`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.rigs.dead_letter_model.events import Lives
from tests.rigs.dead_letter_model.execution import execute
from tests.rigs.dead_letter_model.generator import draw_history
from tests.rigs.dead_letter_model.without_spark import Session
from tiered_stream.delta.landing import landing_by_topic


@pytest.mark.starts_spark
@pytest.mark.parametrize(
    ("histories", "seed"), [(3, 1), pytest.param(20, random.randrange(10_000), marks=pytest.mark.slow, id="20")]
)
def test_each_offset_is_once_in_its_table_or_a_dead_letter_at_every_end_of_a_random_history(
    spark: SparkSession, tmp_path: Path, histories: int, seed: int
) -> None:
    lives = Lives()
    with lives.watched():
        for number in range(1, histories + 1):
            told = execute(spark, lives, draw_history(f"{seed}-{number}"), tmp_path / str(number))
            assert not told.faults, told


@pytest.mark.parametrize(
    ("histories", "seed"), [(5, 1), pytest.param(100, random.randrange(10_000), marks=pytest.mark.slow, id="100")]
)
def test_each_offset_is_once_in_its_table_or_a_dead_letter_if_the_direct_lane_runs_without_a_jvm(
    tmp_path: Path, histories: int, seed: int
) -> None:
    lives, session = Lives(), Session()
    with session.installed(), lives.watched():
        for number in range(1, histories + 1):
            history = draw_history(f"{seed}-{number}", with_spark=False)
            told = execute(session, lives, history, tmp_path / str(number))
            assert not told.faults, told


@pytest.mark.starts_spark
@pytest.mark.slow
@pytest.mark.parametrize("name", ["processes-1", "processes-2", "processes-3", "processes-4"])
def test_a_driver_that_is_killed_by_a_signal_leaves_each_offset_once(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    lives = Lives()
    with lives.watched():
        told = execute(spark, lives, draw_history(name), tmp_path / name, processes=True)
    assert not told.faults, told


def test_a_name_gives_the_same_history_each_time() -> None:
    assert draw_history("1-7") == draw_history("1-7")
    assert len({draw_history(f"1-{number}").steps for number in range(50)}) == 50


FIRST_FAULTY = 11
"""Number of the first history that shows such dead letters."""


def test_the_model_notices_dead_letters_that_an_unfinished_batch_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_by_topic, "remove_unfinished", lambda *_: None)
    lives, session = Lives(), Session()
    with session.installed(), lives.watched():
        histories = (draw_history(f"1-{number}", with_spark=False) for number in range(FIRST_FAULTY, 201))
        assert any(execute(session, lives, each, tmp_path / each.name).faults for each in histories)
