"""Spark gives a Python source no place for metrics, so figures go another way (docs/metrics.md)."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.delta.archive import LONG, everything, options
from tiered_stream import land
from tiered_stream.observe.read_metrics import OBSERVATION

_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python"
_STREAMING = "org.apache.spark.sql.connector.read.streaming"


def test_spark_asks_no_python_source_for_metrics(spark: SparkSession) -> None:
    """If this fails, report bytes, requests and lag there, too."""
    assert spark._jvm is not None
    find = spark._jvm.org.apache.spark.util.Utils.classForName
    reports = find(f"{_STREAMING}.ReportsSourceMetrics", True, False)
    assert not reports.isAssignableFrom(find(f"{_PYTHON}.PythonMicroBatchStream", True, False))


def test_the_direct_lane_has_its_figures_in_sparks_progress(spark: SparkSession, tmp_path: Path) -> None:
    query = land(
        spark, options=options(LONG), table=str(tmp_path / "table"), checkpoint=str(tmp_path / "checkpoint"),
        lane="direct",
    )  # fmt: skip
    query.awaitTermination()
    (progress,) = [batch for batch in query.recentProgress if batch.numInputRows]
    figures = progress.observedMetrics[OBSERVATION]
    assert figures["records"] == everything(LONG).num_rows
    assert figures["remote_fetch_bytes"] > 100_000 and figures["remote_fetch_requests"] > 0
    assert figures["broker_fetch_bytes"] == 0
