"""Rows for Spark without the checks of Arrow's Java library, as docs/tuning.md has it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.delta.archive import ODD, everything, in_order
from tests.rigs.stack.spark import ROOT, UNCHECKED_ARROW, run_program

_READ = """
import json, sys
import pyarrow.parquet as pq
from tests.delta.archive import ODD, options
from tests.rigs.stack.spark import spark_session

spark = spark_session("unchecked", (), json.loads(sys.argv[1]))
pq.write_table(spark.read.format("tiered_stream").options(**options(ODD)).load().toArrow(), sys.argv[2])
arrow = spark._jvm.org.apache.arrow
checked = arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED, arrow.vector.NullCheckingForGet.NULL_CHECKING_ENABLED
spark.stop()
print("checked", *checked)
"""


@pytest.mark.starts_spark
def test_nulls_and_bytes_are_the_same_without_arrows_checks(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    done = run_program(_READ, json.dumps(UNCHECKED_ARROW), str(rows))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "checked False False" in done.stdout
    assert in_order(pq.read_table(rows)).equals(everything(ODD))


def test_the_options_are_those_of_the_tuning_guide() -> None:
    (options,) = UNCHECKED_ARROW.values()
    assert f"'{options}'" in (ROOT / "docs" / "tuning.md").read_text()
