"""The programs in examples/ do what they say, on one broker, one S3 endpoint and one Spark."""

from __future__ import annotations

import importlib.util
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.rigs.stack.build import ROOT
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered
from tiered_stream import read_options

TOPIC, PARTITIONS, RECORDS = "examples-orders", 2, 20
OF_THE_STACK = ("kafka.bootstrap.servers", "subscribe")
NOT_JSON = b"not JSON"

pytestmark = pytest.mark.starts_spark


def order(number: int) -> bytes:
    return b'{"id": %d, "item": "tea", "amount": %d.50, "at": "2026-11-01T00:00:%02dZ"}' % (number, number, number)


@pytest.fixture(scope="module")
def options(stack: TieredStack) -> dict[str, str]:
    """Options that read a topic of which all but the last record of each partition is tiered."""
    create_tiered_topic(stack.broker, TOPIC, PARTITIONS)
    now = time.time_ns() // 1_000_000 - 60_000
    for partition in range(PARTITIONS):
        values = [order(number) for number in range(RECORDS)]
        if not partition:
            values[3] = NOT_JSON
        produce_batch(stack.broker, TOPIC, [Record(b"k", value, timestamp_ms=now) for value in values], partition)
    roll(stack.broker, TOPIC)
    wait_until_tiered(stack.broker, TOPIC)
    return {**stack.options(), "subscribe": TOPIC, "startingOffsets": "earliest"}


def program(name: str) -> ModuleType:
    """Import an example. Its own options must name a broker, a topic and the storage; the stack's replace them here."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", ROOT / "examples" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {*OF_THE_STACK, "startingOffsets", "rsm.config.storage.s3.bucket.name"} <= module.OPTIONS.keys()
    return module


ALL = PARTITIONS * (RECORDS + 1)
"""With the records that closed the segments."""


def test_one_changed_word_lands_the_topic(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    program("one_changed_word").main(spark, options, str(tmp_path))
    assert DeltaTable(str(tmp_path / "orders")).to_pyarrow_table().num_rows == ALL


def test_the_options_of_a_job_serve_a_query_of_ones_own(options: dict[str, str], tmp_path: Path) -> None:
    lines = [f"{name}={value}\n" for name, value in options.items()]
    settings = tmp_path / "orders.properties"
    settings.write_text("".join([*lines, "ingest.table=/tmp/orders\n", "Ingest.checkpointLocation=/tmp/checkpoint\n"]))
    assert read_options(settings) == options | {"remote.settings.file": str(settings)} == read_options(str(settings))


def test_json_becomes_columns_and_dead_letters(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    program("typed_table").main(spark, options, str(tmp_path))
    rows = DeltaTable(str(tmp_path / "typed_orders")).to_pyarrow_table().to_pylist()
    (row,) = (row for row in rows if (row["kafka_partition"], row["kafka_offset"]) == (1, 7))
    assert (row["id"], row["item"], row["amount"]) == (7, "tea", Decimal("7.50"))
    assert row["at"] == datetime(2026, 11, 1, 0, 0, 7, tzinfo=UTC)
    dead = DeltaTable(str(tmp_path / "typed_orders_dead")).to_pyarrow_table().to_pylist()
    assert [(letter["partition"], letter["offset"], letter["value"]) for letter in dead] == [(0, 3, NOT_JSON)]
    assert len(rows) + len(dead) == ALL


@pytest.mark.slow
def test_a_replay_repairs_the_table(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program("replay_and_verify").main(spark, options, str(tmp_path))
    differs, replayed, equal = capsys.readouterr().out.splitlines()
    assert "differs from its topics" in differs and "is equal to its topics" in equal
    assert replayed == f"{ALL} records replayed"


def test_polars_reads_without_spark(options: dict[str, str]) -> None:
    found = program("polars_without_spark").main(options)
    assert found["records"].to_list() == [RECORDS + 1] * PARTITIONS
    assert found["bytes"][1] == sum(len(order(number)) for number in range(RECORDS))
