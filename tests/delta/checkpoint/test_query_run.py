"""How queries of both lanes run, by what Spark has of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.delta.archive import LONG, ODD, everything, land_in, landed, options
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import configured
from tests.spark.connect_session import connect_session
from tiered_stream import land
from tiered_stream.delta.checkpoint import query_run
from tiered_stream.delta.checkpoint.query_run import AVAILABLE_NOW, QueryRun, by_micro_batch
from tiered_stream.spark import stream_reader


def test_the_direct_lanes_query_alone_does_without_generated_code(spark: SparkSession, tmp_path: Path) -> None:
    with configured(spark, {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}):
        assert codegen(start(spark, tmp_path, "direct")) == ("false", "NO_CODEGEN")
        assert codegen(start(spark, tmp_path, "spark")) == ("true", "FALLBACK")
        assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"


def start(spark: SparkSession, folder: Path, lane: str) -> StreamingQuery:
    table, checkpoint = str(folder / "table"), str(folder / "checkpoint")
    return land(spark, options=options(ODD), table=table, checkpoint=checkpoint, trigger="1 hour", lane=lane)


def codegen(query: StreamingQuery) -> tuple[str, str]:
    """What the query's own session says of generated code."""
    java: Any = query._jsq
    conf = java.streamingQuery().sparkSessionForStream().conf()
    query.stop()
    return conf.get("spark.sql.codegen.wholeStage"), conf.get("spark.sql.codegen.factoryMode")


def test_a_query_goes_on_unless_it_ends_with_what_there_is() -> None:
    assert QueryRun("checkpoint", "1 second", None).goes_on
    assert not QueryRun("checkpoint", AVAILABLE_NOW, None).goes_on


class Started:
    """A writer and its query, with the trigger that it was given."""

    trigger_given: Mapping[str, Any] = {}
    read_all = stopped = False

    def option(self, *_: str) -> Started:
        return self

    def trigger(self, **given: Any) -> Started:
        self.trigger_given = given
        return self

    def start(self) -> Started:
        return self

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        self.read_all = True

    def stop(self) -> None:
        self.stopped = self.read_all


@pytest.mark.parametrize(
    ("server", "trigger"), [("4.1.2", {"processingTime": "0 seconds"}), ("4.2.0", {"availableNow": True})]
)
@pytest.mark.parametrize("client", [False, True], ids=["older client", "newer client"])
def test_the_server_of_spark_connect_decides_about_the_trigger_and_not_its_client(
    monkeypatch: pytest.MonkeyPatch, server: str, trigger: Mapping[str, Any], client: bool
) -> None:
    monkeypatch.setattr(stream_reader, "HAS_READ_LIMITS", client)
    writer: Any = Started()
    QueryRun("checkpoint", AVAILABLE_NOW, None).start(connect_session(server), writer)
    assert writer.trigger_given == trigger
    wait_until(lambda: writer.stopped or "availableNow" in trigger, "the end of the run", pause=0.01)


@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_a_run_ends_with_what_there_is_where_spark_would_give_it_one_batch_without_limits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setattr(query_run, "has_read_limits", lambda _: False)
    table, given = tmp_path / "table", {"maxOffsetsPerTrigger": "5000"}
    for _ in range(2):  # again, with nothing new
        query = land_in(tmp_path, spark, options(LONG, given), lane)
        assert query.exception() is None
    assert landed(table).equals(everything(LONG))
    assert all(progress.numInputRows <= 5000 for progress in query.recentProgress)


def test_a_query_that_is_stopped_during_a_job_of_its_micro_batch_ends_without_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    running = threading.Event()

    def write(batch: DataFrame, batch_id: int) -> None:
        running.set()
        batch.sparkSession.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 60000L)").collect()

    rows = spark.readStream.format("rate").load()
    query = QueryRun(str(tmp_path / "checkpoint"), "0 seconds", None).start(spark, by_micro_batch(rows, write))
    assert running.wait(60)
    with jvm_errors(spark) as printed:
        query.stop()
    assert query.exception() is None
    assert "Exception in thread" not in printed.toString()


@contextmanager
def jvm_errors(spark: SparkSession) -> Iterator[Any]:
    """What the JVM prints to its standard error in the `with` block, such as errors that have ended a thread."""
    java: Any = spark._jvm
    usual, printed = java.System.err, java.java.io.ByteArrayOutputStream()
    java.System.setErr(java.java.io.PrintStream(printed, True))
    try:
        yield printed
    finally:
        java.System.setErr(usual)
