"""Types as SQL text, and what a session says of TIMESTAMP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.rigs.stack.spark import configured
from tiered_stream.delta.catalog.address import create_by_spark, find_address
from tiered_stream.delta.schema.row_schema import check_times, time_zone
from tiered_stream.delta.schema.sql_types import sql_columns, sql_name, sql_text, sql_type
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import ConfigurationError

LOCAL = {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
INSTANT, LOCAL_TIME = TimestampType(), TimestampNTZType()
EVERYWHERE = StructType([
    StructField("timestamp", INSTANT),
    StructField("a `b", StructType([StructField("TIMESTAMP", INSTANT), StructField("local", LOCAL_TIME)])),
    StructField("list", ArrayType(INSTANT)),
    StructField("map", MapType(StringType(), StructType([StructField("at", INSTANT)]))),
    StructField("d", DecimalType(12, 3)),
    StructField("n", LongType(), nullable=False),
])  # fmt: skip


def test_an_instant_has_the_name_that_no_setting_changes() -> None:
    assert sql_type(INSTANT) == "TIMESTAMP_LTZ"
    assert sql_columns(EVERYWHERE) == (
        "`timestamp` TIMESTAMP_LTZ, `a ``b` STRUCT<`TIMESTAMP`: TIMESTAMP_LTZ, `local`: TIMESTAMP_NTZ>, "
        "`list` ARRAY<TIMESTAMP_LTZ>, `map` MAP<STRING, STRUCT<`at`: TIMESTAMP_LTZ>>, `d` DECIMAL(12,3), "
        "`n` BIGINT NOT NULL"
    )


def test_a_table_that_spark_makes_has_instants_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    schema = StructType([each for each in EVERYWHERE if each.name != "a `b"])
    with configured(spark, LOCAL):
        create_by_spark(spark, find_address(spark, f"{tmp_path}/table"), TableSpec("", columns=schema))
    assert spark.read.format("delta").load(f"{tmp_path}/table").schema.simpleString() == schema.simpleString()


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def test_times_without_a_zone_are_in_that_of_the_session(spark: SparkSession) -> None:
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert time_zone(spark) == "Asia/Tokyo"


def test_a_column_of_the_other_kind_of_time_is_refused_at_any_depth() -> None:
    instants = StructType([StructField("s", StructType([StructField("at", ArrayType(INSTANT))]))])
    there = {"type": "struct", "fields": [field("AT", {"type": "array", "elementType": "timestamp_ntz"})]}
    with pytest.raises(ConfigurationError, match=r" S\.AT\.element as TIMESTAMP_NTZ.* TIMESTAMP in"):
        check_times("lake", [field("S", there), field("x", "timestamp_ntz")], instants)
    local = StructType([StructField("t", LOCAL_TIME)])
    with pytest.raises(ConfigurationError, match=" t as TIMESTAMP,.* TIMESTAMP_NTZ in"):
        check_times("lake", [field("t", "timestamp")], local)
    check_times("lake", [field("t", "timestamp_ntz")], local)
    check_times("lake", [field("t", "string")], local)


@pytest.mark.parametrize("name", ["${env:HOME}", "${system:user.dir}", "x${spark.app.name}y"])
def test_no_name_and_no_text_is_replaced_by_a_variable_in_sparks_sql(spark: SparkSession, name: str) -> None:
    assert spark.sql(f"SELECT 1 AS `{name}`").columns != [name]
    with pytest.raises(ConfigurationError, match="begins a variable in Spark's SQL"):
        sql_name(["x", name])
    (row,) = spark.sql(f"SELECT {sql_text(name)} AS text").collect()
    assert row["text"] == name
