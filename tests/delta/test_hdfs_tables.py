"""Tables and checkpoints in HDFS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, in_order, options
from tests.delta.clouds import keys
from tests.delta.committing import commit_by_two_writers, table
from tests.rigs.stack.hdfs import Hdfs
from tiered_stream import land, verify
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.commit.commit_library import choose_committer
from tiered_stream.delta.commit.deltalake_commit import describe
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_SPARK, TableSpec
from tiered_stream.inspection.lag_report import committed_batch


@pytest.fixture
def root(hdfs: Hdfs, tmp_path: Path) -> str:
    """A folder of the test's own in HDFS, which does not exist yet."""
    return f"{hdfs.uri}/tests-of-tables/{tmp_path.name}"


@pytest.mark.parametrize("lane", ["direct", pytest.param("spark", marks=pytest.mark.slow)])
def test_topics_are_landed_with_table_and_checkpoint_in_hdfs(spark: SparkSession, root: str, lane: str) -> None:
    files = TableSpec(f"{root}/bronze/orders")
    given = options(given={"maxOffsetsPerTrigger": "1500", "ingest.dayColumn": "day"})
    landing = plan_query(spark, options=given, table=files.uri, run=QueryRun(f"{root}/checkpoint"), lane=lane)
    assert landing.lane is Lane(lane)
    query = landing.start()
    query.awaitTermination()
    batch = query.recentProgress[-1].batchId
    assert batch >= 3
    assert in_order(table(files).to_pyarrow_table()).equals(everything(ODD))
    assert committed_batch(f"{root}/checkpoint", files.storage).batch_id == batch
    assert choose_committer(spark, files, describe(table(files)))[0] == COMMIT_BY_SPARK
    again = land(spark, options=given, table=files.uri, checkpoint=f"{root}/checkpoint", lane=lane)
    again.awaitTermination()
    assert in_order(table(files).to_pyarrow_table()).equals(everything(ODD))
    assert verify(spark, options=options(), table=files.uri).equal


@pytest.mark.slow
def test_two_queries_at_once_lose_nothing_by_the_sessions_delta(spark: SparkSession, root: str) -> None:
    files, topics = TableSpec(f"{root}/t"), ODD.split(",")
    given = {"maxOffsetsPerTrigger": "300"}

    def run(topic: str) -> None:
        land(
            spark, options=options(topic, given), table=files.uri, checkpoint=f"{root}/{topic}", lane="direct"
        ).awaitTermination()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, topics))
    assert in_order(table(files).to_pyarrow_table()).equals(everything(ODD))


@pytest.mark.usefixtures("hdfs")
def test_two_writers_at_once_lose_nothing_by_deltalake(root: str) -> None:
    files = TableSpec(f"{root}/t")
    commit_by_two_writers(files)
    assert all(".parquet" in key or key.startswith("_delta_log/") for key in keys(files))
