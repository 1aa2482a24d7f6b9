"""Spark kills Python workers that give nothing for long; tasks of the direct lane give one row, at their end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, landed, options
from tests.delta.golden_fetchers import IDLE_SECONDS, SILENT_SECONDS, QuietFetcher
from tests.rigs.stack.jars import SPARK
from tests.rigs.stack.spark import configured
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import (
    IDLE_LIMIT,
    started_without_idle_limit,
    without_idle_limit,
)

LIMITED = {IDLE_LIMIT: str(IDLE_SECONDS), "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true"}
pytestmark = pytest.mark.skipif(SPARK == "4.0", reason="Spark 4.0 kills no Python workers")
QUIET = {"kafka.remote.storage.fetcher.class": f"{QuietFetcher.__module__}.{QuietFetcher.__name__}"}


@pytest.mark.slow
@pytest.mark.parametrize("table", ["table", "{topic}"])
def test_a_task_that_is_silent_for_longer_than_the_limit_lands_its_rows(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    assert SILENT_SECONDS > IDLE_SECONDS
    topic = ODD.partition(",")[0]
    with configured(spark, LIMITED):
        query = land(
            spark, options=options(topic, QUIET), table=f"{tmp_path}/{table}", checkpoint=f"{tmp_path}/checkpoint",
            lane="direct",
        )  # fmt: skip
        assert spark.conf.get(IDLE_LIMIT) == LIMITED[IDLE_LIMIT], "the session has its own limit"
        query.awaitTermination()
    assert landed(tmp_path / table.format(topic=topic)).equals(everything(topic))


def test_the_session_keeps_its_limit_and_has_none_while_a_query_starts(spark: SparkSession) -> None:
    with configured(spark, LIMITED):
        with started_without_idle_limit(spark):
            assert spark.conf.get(IDLE_LIMIT) == "0"
        assert spark.conf.get(IDLE_LIMIT) == LIMITED[IDLE_LIMIT]
        copy = without_idle_limit(spark)
        assert (copy.conf.get(IDLE_LIMIT), spark.conf.get(IDLE_LIMIT)) == ("0", LIMITED[IDLE_LIMIT])
    assert without_idle_limit(spark) is spark, "nothing is copied where Spark kills no worker"
