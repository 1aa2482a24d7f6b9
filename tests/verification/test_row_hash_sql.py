"""The row hash of Arrow batches, next to what Spark SQL gives of the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS
from tiered_stream.records.row_hash import HASHED, row_hash_sql, row_hashes

ROWS = 6_000
LENGTHS = (*range(42), *range(60, 70), 127, 128, 255, 256, 1_000, 65_537)
MAX_MILLISECONDS = (2**63 - 1) // 1000


def some_bytes(chosen: random.Random) -> bytes | None:
    return None if chosen.random() < 0.15 else chosen.randbytes(chosen.choice(LENGTHS))


def some_headers(chosen: random.Random) -> list[dict[str, Any]] | None:
    if chosen.random() < 0.4:
        return chosen.choice([None, []])
    keys = [chosen.choice(["", "a", "a", "Größe", "x" * 40]) for _ in range(chosen.randint(1, 5))]
    return [{"key": key, "value": some_bytes(chosen)} for key in keys]


def some_rows(seed: int) -> Iterator[dict[str, Any]]:
    chosen = random.Random(seed)
    for number in range(ROWS):
        times = 0, -1, chosen.randint(-(2**40), 2**41), MAX_MILLISECONDS, -MAX_MILLISECONDS
        yield {
            "key": some_bytes(chosen),
            "value": some_bytes(chosen),
            "topic": "t",
            "partition": 0,
            "offset": chosen.choice([number, chosen.randint(0, 2**62)]),
            "timestamp": chosen.choice(times) * 1000,
            "timestampType": 0,
            "headers": some_headers(chosen),
        }


@pytest.fixture(scope="module")
def rows() -> pa.RecordBatch:
    found = list(some_rows(seed=14))
    arrays = [pa.array([row[field.name] for row in found], field.type) for field in SCHEMA_WITH_HEADERS]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS)


@pytest.mark.parametrize("columns", [HASHED, (), ("timestamp", "value"), ("key", "headers")])
def test_spark_gives_the_same_hash_of_each_row(
    spark: SparkSession, tmp_path: Path, rows: pa.RecordBatch, columns: tuple[str, ...]
) -> None:
    pq.write_table(pa.Table.from_batches([rows]), tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
    by_spark = [row[0] for row in frame.selectExpr(row_hash_sql(columns)).collect()]
    sliced = [row_hashes(rows.slice(start, 777), columns) for start in range(0, ROWS, 777)]
    assert len(by_spark) == ROWS
    assert np.concatenate(sliced).tolist() == by_spark
    assert len(set(by_spark)) > ROWS * 0.99
