"""Texts of schemas: the same Arrow types as by Spark's own parser."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tiered_stream.delta.schema.sql_types import arrow_schema
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.sql.sql_reader import SqlError, parse_spark_schema

DDL = (
    "id BIGINT, name STRING, amount DECIMAL(12,2), at TIMESTAMP",
    "id bigint NOT NULL COMMENT 'the key', `odd ``name` string, d dec, n NUMERIC(5), e DECIMAL(38, 38)",
    "a tinyint, b byte, c smallint, d short, e int, f integer, g long, h float, i real, j double, k boolean, l binary",
    "d DATE, t TIMESTAMP_NTZ, l TIMESTAMP_LTZ",
    "items ARRAY<STRUCT<sku: STRING NOT NULL, count: INT, tags: ARRAY<ARRAY<STRING>>>>, by MAP<STRING, MAP<INT, DATE>>",
    "struct<a: int, b: struct<c: string>>",
    "a: int, b: string",
    "comment STRING, not_null INT, `array` DATE",
    "id INT, -- the key\n/* and\nits name */ name STRING -- in full",
)


@pytest.mark.stack
def test_each_schema_has_the_types_that_spark_gives_it(spark: SparkSession) -> None:
    for text in DDL:
        by_spark = spark.createDataFrame([], text).schema
        assert parse_spark_schema(text).equals(arrow_schema(by_spark)), text
        assert parse_spark_schema(by_spark.json()).equals(arrow_schema(by_spark)), text


@pytest.mark.parametrize(
    "text",
    [
        "", "id", "id BIGINT,", "id BIGINT name STRING", "a ARRAY<INT", "a MAP<INT>", "a ?", "<", "id INT COMMENT",
        "id INT COMMENT key", "id INT COMMENT `key`", "id INT COMMENT 5", "a STRUCT<b: INT COMMENT>",
    ],
)  # fmt: skip
def test_other_texts_are_no_schema(text: str) -> None:
    with pytest.raises(ValueError, match="is not expected|ends too soon"):
        parse_spark_schema(text)


@pytest.mark.parametrize("kind", ["VARCHAR(3)", "INTERVAL", "VARIANT", "DECIMAL(39,0)", "DECIMAL(2,3)"])
def test_types_that_need_spark_are_refused(kind: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_spark_schema(f"a {kind}")


@pytest.mark.parametrize("sizes", ["1" * 5000, "5," + "1" * 5000])
def test_a_number_of_many_digits_is_no_size(sizes: str) -> None:
    with pytest.raises(SqlError):
        parse_spark_schema(f"a DECIMAL({sizes})")


def test_deep_types_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="64 levels"):
        parse_spark_schema(f"a {'ARRAY<' * 100}INT{'>' * 100}")
