"""Values that readers of Parquet and of a table's statistics are known to misread: early times, zeros, NaN."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import land_in
from tests.delta.table_readers import by_deltalake, by_duckdb
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import configured
from tests.tier.topics import topic_options, write_topic

EARLY = "d DATE, t TIMESTAMP, s STRUCT<l: ARRAY<DATE>, t: TIMESTAMP>, m MAP<STRING, TIMESTAMP>"
DAYS = ["0001-01-01", "0999-12-31", "1582-10-04", "1582-10-15", "1899-12-31"]
REBASE = "spark.sql.parquet.datetimeRebaseModeInRead"
VECTORIZED = "spark.sql.parquet.enableVectorizedReader"


def run(spark: SparkSession, folder: Path, ddl: str, values: list[bytes]) -> Path:
    """Land the values; where the table is."""
    write_topic(folder / "bucket", "orders", [[Record(None, value) for value in values]])
    given = {"ingest.value.format": "json", "ingest.value.schema": ddl, "ingest.kafkaColumns": "none"}
    land_in(folder, spark, topic_options(folder / "bucket", "orders", given))
    return folder / "table"


def test_no_session_refuses_or_shifts_early_dates_and_times(spark: SparkSession, tmp_path: Path) -> None:
    moments = [f"{day}T12:34:56.789Z" for day in DAYS]
    values = [
        b'{"d":"%s","t":"%s","s":{"l":["%s"],"t":"%s"},"m":{"a":"%s"}}'
        % tuple(each.encode() for each in (day, moment, day, moment, moment))
        for day, moment in zip(DAYS, moments, strict=True)
    ]
    table = run(spark, tmp_path, EARLY, values)
    texts = ["CAST(d AS STRING)", "CAST(s.l[0] AS STRING)"]
    texts += [f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss.SSSX\")" for name in ("t", "s.t", "m['a']")]
    expected = sorted((day, day, moment, moment, moment) for day, moment in zip(DAYS, moments, strict=True))
    for mode in ("EXCEPTION", "LEGACY", "CORRECTED"):
        for vectorized in ("true", "false"):
            with configured(spark, {REBASE: mode, VECTORIZED: vectorized}):
                found = spark.read.format("delta").load(str(table)).selectExpr(*texts).collect()
            assert sorted(map(tuple, found)) == expected, mode
    for rows in (by_deltalake(table), by_duckdb(table)):
        assert sorted(row["d"].isoformat() for row in rows) == DAYS


@pytest.mark.parametrize(
    ("numbers", "conditions"),
    [
        (["-0.0", "0.0", "-0.0"], {"{} >= 0.0D": 3, "{} <= 0.0D": 3, "{} = 0.0D": 3, "{} > -1.0D": 3, "{} < 0.0D": 0}),
        (["1.0", "NaN", "2.0"], {"{} > 5.0D": 1, "{} = double('NaN')": 1, "NOT {} < 5.0D": 1, "{} <= 2.0D": 2}),
    ],
)
def test_no_row_with_a_zero_or_a_nan_is_skipped(
    spark: SparkSession, tmp_path: Path, numbers: list[str], conditions: dict[str, int]
) -> None:
    values = [b'{"e":%s,"s":{"e":%s}}' % ((each.encode(),) * 2) for each in numbers]
    table = run(spark, tmp_path, "e DOUBLE, s STRUCT<e: DOUBLE>", values)
    rows = spark.read.format("delta").load(str(table))
    asked = {each.format(name): count for each, count in conditions.items() for name in ("e", "s.e")}
    assert {each: rows.where(each).count() for each in asked} == asked
    assert Counter(str(row["e"]) for row in by_duckdb(table)) == Counter(map(str, map(float, numbers)))
