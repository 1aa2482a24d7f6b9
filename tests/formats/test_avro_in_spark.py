"""What a value is here, it is by Spark's `from_avro`, too.

Spark takes for values what are none here, as docs/guides say; what is a value here is the same there.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

from tests.formats.avro_cases import Schemas, avro_decoder, encoded, value
from tests.formats.landed import row_of
from tests.rigs.fuzz.mutation import spoiled

pytestmark = pytest.mark.stack

VALUES = 12
TAKEN_BY_SPARK = ("bytes after its end", "neither 0 nor 1", "not UTF-8", "a key twice", "longer than its type",
                  "not as long as it says", "more digits", "into microseconds", "more items")  # fmt: skip


def by_spark(spark: SparkSession, schema: Any, values: list[bytes]) -> pa.Array:
    """As a column; a value that it takes for none is null, or a row of nulls."""
    rows = spark.createDataFrame(list(enumerate(values)), "at int, value binary").repartition(1)
    decoded = rows.select("at", from_avro("value", json.dumps(schema), {"mode": "PERMISSIVE"}).alias("v")).orderBy("at")
    return decoded.toArrow()["v"].combine_chunks()


def is_null(row: Any) -> bool:
    return row is None or (isinstance(row, dict) and all(map(is_null, row.values())))


@pytest.mark.parametrize("seed", range(12))
def test_values_and_types_are_those_of_from_avro(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    schema = Schemas(random).record()
    values = [encoded(schema, value(random, schema)) for _ in range(VALUES)]
    values += [spoiled(random, each) for each in values]
    ours = avro_decoder(json.dumps(schema)).decode(pa.array(values, pa.binary()))
    theirs = by_spark(spark, schema, values)
    assert theirs.type == ours.column.type
    assert not {row for row in ours.reasons if row < VALUES}
    for at in range(len(values)):
        if at not in ours.reasons:
            assert row_of(ours.column, at) == row_of(theirs, at)
        elif not any(each in ours.reasons[at] for each in TAKEN_BY_SPARK):
            assert is_null(row_of(theirs, at)), ours.reasons[at]
