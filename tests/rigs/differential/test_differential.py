"""Random settings by Spark's own `kafka` source and by ours: what comes out has to be the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.rigs.differential.comparison import Comparison
from tests.rigs.differential.topics import LONG_TRANSACTIONS
from tests.rigs.stack.tiered_stack import TieredStack


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "seed"), [(8, 1), pytest.param(40, random.randrange(10_000), id="40")])
def test_random_settings_give_what_spark_s_own_source_gives(
    spark: SparkSession, tmp_path: Path, settings: int, seed: int
) -> None:
    with TieredStack(tmp_path / "stack", properties=LONG_TRANSACTIONS) as stack:
        comparison = Comparison(spark, stack, tmp_path, seed)
        found = comparison.run(settings, print)
    assert not found, f"seed {seed}: {found}"
    tally = comparison.tally
    assert tally.batch + tally.stream + tally.on_purpose == settings
    assert tally.rows
