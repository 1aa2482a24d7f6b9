"""Names of tables in Spark's catalog."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tiered_stream.delta.schema.routing import name_parts, quoted_name, table_for
from tiered_stream.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", ("orders",)),
        ("lake.orders", ("lake", "orders")),
        ("main . lake.`a.b`", ("main", "lake", "a.b")),
        ("`x``y`", ("x`y",)),
        ("orders--raw", ("orders--raw",)),
        ("orders /* all */; DROP TABLE orders", ("orders /* all */; DROP TABLE orders",)),
    ],
)
def test_spark_reads_the_quoted_name_as_the_parts_of_the_name(
    spark: SparkSession, name: str, parts: tuple[str, ...]
) -> None:
    assert name_parts(name) == name_parts(quoted_name(parts)) == parts
    parser = spark._jsparkSession.sessionState().sqlParser()
    read = parser.parseMultipartIdentifier(quoted_name(parts))
    assert tuple(read.apply(number) for number in range(read.length())) == parts


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "a.``", "`a", "a`b", "`a`b", "`a\nb`", "`a\x1b[31m`", "a. "]
)
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is no name of a table: write table, database"):
        name_parts(name)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("/lake/{topic}", "/lake/a--b"),
        ("{topic}", "`a--b`"),
        ("lake.raw_{topic}", "lake.`raw_a--b`"),
        ("lake.`{topic} raw`", "lake.`a--b raw`"),
        ("lake.orders", "lake.orders"),
    ],
)
def test_a_topic_stands_within_one_part_of_its_tables_name(table: str, expected: str) -> None:
    assert table_for(table, "a--b") == expected
