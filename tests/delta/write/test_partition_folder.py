"""Partition folders of day columns with odd names, by both committers and in both lanes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession

from tests.delta.table_readers import by_deltalake, by_duckdb, by_spark
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_files import log_path, partition_folder
from tiered_stream.errors import ConfigurationError

ODD = ["day%20x", "day#utc", "day?x", "day:x", "a.b", "d'a\"y", "d`y", "d[a]y^", "d*\\y/z", "d|<y>", "dä日", "%"]


def test_a_folder_is_named_as_spark_names_it() -> None:
    """Those that Spark 4.2 gave the same columns."""
    named = {name: partition_folder(name, "2024-01-01").removesuffix("=2024-01-01") for name in ODD}
    assert named == {
        "day%20x": "day%2520x", "day#utc": "day%23utc", "day?x": "day%3Fx", "day:x": "day%3Ax", "a.b": "a.b",
        "d'a\"y": "d%27a%22y", "d`y": "d`y", "d[a]y^": "d%5Ba%5Dy%5E", "d*\\y/z": "d%2A%5Cy%2Fz", "d|<y>": "d|<y>",
        "dä日": "dä日", "%": "%25",
    }  # fmt: skip
    assert partition_folder("a\x01\x7f", "x=y") == "a%01%7F=x%3Dy"


@pytest.mark.parametrize("name", ODD)
def test_a_path_in_the_log_is_a_uri_of_the_file(name: str) -> None:
    path = f"{partition_folder(name, '2024-01-01')}/part-0.parquet"
    assert unquote(log_path(path)) == path and not set(log_path(path)) & set(' "#<>?[\\]^`{|}')


def run(spark: SparkSession, folder: Path, lane: str, given: Mapping[str, str]) -> Path:
    """Land 2 records, a day apart; where the table is."""
    bucket, table = folder / "bucket", folder / "table"
    moments = (1_704_067_200_000, 1_704_153_600_000)
    write_topic(bucket, "orders", [[Record(None, b"%d" % at, (), moment) for at, moment in enumerate(moments)]])
    land(
        spark, options=topic_options(bucket, "orders", given), table=str(table), checkpoint=str(folder / "c"), lane=lane
    ).awaitTermination()
    return table


@pytest.mark.parametrize("commit", ["deltalake", "spark"])
@pytest.mark.parametrize("name", ["day:x", "".join(each for each in ODD if each != "%") + "%"])
def test_every_reader_finds_the_files_of_an_odd_day_column(
    spark: SparkSession, tmp_path: Path, name: str, commit: str
) -> None:
    given = {"ingest.dayColumn": name, "ingest.commit": commit, "ingest.kafkaColumns": "offset"}
    table = run(spark, tmp_path, "direct", given)
    expected = [{"offset": 0, name: date(2024, 1, 1)}, {"offset": 1, name: date(2024, 1, 2)}]
    for found in (by_spark(spark, table), by_deltalake(table), by_duckdb(table)):
        assert sorted(found, key=lambda row: row["offset"]) == expected
    assert sorted(each.name for each in table.iterdir() if each.is_dir() and not each.name.startswith("_")) == [
        partition_folder(name, f"2024-01-0{day}") for day in (1, 2)
    ]


@pytest.mark.parametrize("name", ["a day", "a=b", "(day)", "a\nday"])
def test_no_table_is_made_whose_day_column_delta_does_not_take(tmp_path: Path, name: str) -> None:
    files = TableSpec((tmp_path / "table").as_uri(), day_column=name)
    with pytest.raises(ConfigurationError, match=f"ingest.dayColumn is {re.escape(repr(name))}"):
        create_table(files, table_schema(True, name), {})
    assert not (tmp_path / "table").exists()
