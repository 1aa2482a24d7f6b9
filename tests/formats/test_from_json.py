"""What JSON becomes here is what Spark's own `from_json` makes of it, but for what `docs/guides/json-types.md` says."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructType

from tests.formats.json_documents import document, in_python, make_kind
from tiered_stream.formats.json.json_decoder import JsonDecoder

pytestmark = pytest.mark.stack

CORRUPT = "_corrupt_record"
ENDLESS = re.compile(rb"1e9{5,}")

STRICTER = re.compile(
    r"no JSON: |byte \d+ is not UTF-8|more than 200 levels|.*half a surrogate pair"
    r"|.*the number (1[2-9]\d|2[0-4]\d|25[0-5]) is no int8|.*the number -?\d+ is no timestamp\[us, tz=UTC\]"
)
"""Reasons for values that Spark takes, or takes a part of: the rows of the docs' table that say so."""


def rows_of_spark(spark: SparkSession, kind: pa.StructType, documents: list[bytes]) -> tuple[list[Any], list[bool]]:
    """Spark's rows, and whether it calls them corrupt."""
    schema = from_arrow_type(kind, prefer_timestamp_ntz=True)
    assert isinstance(schema, StructType)
    values = pa.table({"at": pa.array(range(len(documents)), pa.int32()), "value": pa.array(documents, pa.binary())})
    parsed = from_json(col("value").cast("string"), schema.add(CORRUPT, StringType())).alias("row")
    rows = spark.createDataFrame(values).coalesce(1).select("at", parsed)
    corrupt = col("row").isNull() | col(f"row.{CORRUPT}").isNotNull()
    table = rows.select("at", col("row").dropFields(CORRUPT).alias("row"), corrupt.alias("corrupt")).toArrow()
    table = table.sort_by("at")
    return in_python(pa.concat_arrays(table["row"].chunks)), table["corrupt"].to_pylist()


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_those_of_spark_and_reasons_stand_where_spark_finds_a_value_corrupt(
    spark: SparkSession, seed: int
) -> None:
    random = Random(seed)
    kind = make_kind(random)
    # Of a decimal with such an exponent Spark would compute all digits, for hours.
    documents = [each for each in (document(random, kind) for _ in range(200)) if not ENDLESS.search(each)]
    found = JsonDecoder(kind).decode(pa.array(documents, pa.binary()))
    ours = in_python(found.column)

    theirs, corrupt = rows_of_spark(spark, kind, documents)

    for slot, each in enumerate(documents):
        reason = found.reasons.get(slot)
        if reason is None:
            assert (str(ours[slot]), False) == (str(theirs[slot]), corrupt[slot]), each
        else:
            assert corrupt[slot] or STRICTER.match(reason), (each, reason, theirs[slot])
