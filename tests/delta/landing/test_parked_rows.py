"""Errors of the query that reads the rows of a parked table again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tiered_stream.delta.landing import landing_by_topic
from tiered_stream.delta.landing.landing_by_topic import ParkedRows
from tiered_stream.delta.schema.routing import Route, Routing, TaskSettings
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import DataLossError, TableError
from tiered_stream.model import OffsetRange, TopicPartition

ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times"
LOST = f"{ABORTED}, most recent failure: ExecutorLostFailure (executor 1 exited)"
GONE = f"{ABORTED}:\nTraceback (most recent call last):\ntiered_stream.errors.DataLossError: the log starts at 7\n\n"


class JavaError(Py4JJavaError):
    """As PySpark raises an error of Java that it has no class for."""

    def __init__(self, text: str) -> None:
        self.text = text
        kind = SimpleNamespace(getName=lambda: text.partition(":")[0], getSuperclass=lambda: None)
        java = SimpleNamespace(
            _target_id="o7", toString=lambda: text, getClass=lambda: kind, getCause=lambda: None
        )  # fmt: skip
        super().__init__("An error occurred while calling o7.collectToPython.", java)

    def __str__(self) -> str:
        return f"{self.errmsg}: {self.text}"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (LOST, TableError, "ExecutorLostFailure"),
        (GONE, DataLossError, "the log starts at 7"),
        ("java.lang.InterruptedException", JavaError, "o7"),
        ("org.apache.spark.SparkException: Job 3 cancelled", JavaError, "o7"),
    ],
    ids=["executor", "records", "interrupted", "cancelled"],
)
def test_an_error_that_pyspark_does_not_know_parks_the_table_unless_the_query_is_stopped(
    monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception], said: str
) -> None:
    def fail(_: Any) -> None:
        raise JavaError(text)

    monkeypatch.setattr(landing_by_topic, "without_idle_limit", fail)
    spark: Any = None
    rows = ParkedRows(spark, {}, TaskSettings(Routing(TableSpec(""), (Route(".*", "/t", "file:///t"),))))
    with pytest.raises(kind) as raised:
        rows.files("file:///t", {TopicPartition("a", 0): OffsetRange(0, 9)}, "query", 3)
    assert type(raised.value) is kind and said in str(raised.value)
