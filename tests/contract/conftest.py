from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.contract.runs import Runs


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path) -> Runs:
    return Runs(spark, tmp_path / "checkpoint")
