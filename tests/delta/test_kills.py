"""The driver is killed, with all its processes, and another goes on. `make chaos` does so at every point."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, landed
from tests.delta.driver import AFTER_COMMIT, AFTER_GROWTH, Run
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]


def test_a_driver_killed_between_the_tables_commit_and_sparks_lands_every_record_once(tmp_path: Path) -> None:
    table, checkpoint, log = tmp_path / "table", tmp_path / "checkpoint", tmp_path / "log"
    run = Run(str(table), str(checkpoint), ODD, limit=2500)
    assert replace(run, point=AFTER_COMMIT).execute(log) == -signal.SIGKILL, log.read_text()
    assert DeltaTable(table).version() == 1 and not list((checkpoint / "commits").glob("[0-9]*"))
    assert run.execute(log) == 0, log.read_text()
    assert landed(table).equals(everything(ODD))
    assert len(list(table.glob("*.parquet"))) == len(DeltaTable(table).file_uris())  # nothing was written twice


def test_a_driver_killed_when_columns_are_wider_already_lands_every_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, log = tmp_path / "table", tmp_path / "log"
    for first, documents in enumerate([[b'{"id": 1}'], [b'{"id": 3000000000}'], [b'{"id": 2}']]):
        write_topic(tmp_path / "bucket", "orders", [[Record(None, each) for each in documents]], first=first)
    widen = {
        "ingest.value.format": "json", "ingest.value.schema": "id INT", "ingest.schemaEvolution": "widen",
        "ingest.kafkaColumns": "offset",
    }  # fmt: skip
    given = topic_options(tmp_path / "bucket", "orders", widen)
    run = Run(str(table), str(tmp_path / "checkpoint"), "orders", limit=1, given=given)
    assert replace(run, point=AFTER_GROWTH, batch=2).execute(log) == -signal.SIGKILL, log.read_text()
    killed = spark.read.format("delta").load(str(table))
    assert killed.dtypes == [("id", "bigint"), ("offset", "bigint")] and killed.count() == 1
    assert run.execute(log) == 0, log.read_text()
    rows = spark.read.format("delta").load(str(table)).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(1, 0), (3_000_000_000, 1), (2, 2)]
