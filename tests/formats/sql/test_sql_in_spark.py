"""`ingest.select` and `ingest.where` give what Spark's SQL gives, for made-up expressions and hostile values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.formats.sql.made_sql import COLUMNS, Expressions, rows
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.kafka_columns import hidden
from tiered_stream.formats.rows.sql_query import SqlQuery
from tiered_stream.formats.sql.parser import parse_query
from tiered_stream.formats.sql.row_query import RowQuery

pytestmark = pytest.mark.stack

EXAMPLES = int(os.environ.get("EXAMPLES", "3"))
"""Spark compiles thirty expressions for each example, which takes about a second."""
ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""An error names its one expression already, and each step of shrinking would start Spark's compiler again."""
HIDDEN = [hidden("offset", pa.int64()), hidden("timestamp", pa.timestamp("us", tz="UTC"))]


@pytest.fixture(params=["true", "false"])
def in_utc(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in (ZONE, ANSI)}
    spark.conf.set(ZONE, "UTC")
    spark.conf.set(ANSI, request.param)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "")


def exact(values: pa.ChunkedArray | pa.Array) -> list[str]:
    """Texts that differ wherever values do; times as numbers, because Python does not hold all of them."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return list(map(repr, values.to_pylist()))


def parsed(select: str | None, where: str | None) -> SqlQuery:
    query = parse_query(select, where)
    assert query is not None
    return query


def accepted(random: Random, count: int) -> list[str]:
    """Expressions of the list; a made-up one whose types do not go together is refused by a clear error."""
    made: list[str] = []
    while len(made) < count:
        text = Expressions(random).some()
        try:
            RowQuery(parsed(f"{text} AS x", None), COLUMNS, "UTC")
        except ConfigurationError as error:
            assert "ingest.select has" in str(error), error
            continue
        made.append(text)
    return made


def with_position(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.array(range(batch.num_rows), pa.int64())
    columns = [*batch.columns, numbers, numbers.cast(pa.timestamp("us", tz="UTC"))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*batch.schema, *HIDDEN]))


def ours(texts: list[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    select = ", ".join(f"{text} AS x{at}" for at, text in enumerate(texts))
    return RowQuery(parsed(select, None), COLUMNS, "UTC").apply(with_position(batch))


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=EXAMPLES, deadline=None, phases=UNSHRUNK, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_each_expression_has_sparks_type_and_sparks_values(in_utc: SparkSession, seed: int) -> None:
    random = Random(seed)  # draws of hypothesis' own are too many for one example
    batch, texts = rows(random, 40), accepted(random, 30)
    found = ours(texts, batch)
    data = in_utc.createDataFrame(pa.Table.from_batches([batch])).coalesce(1)
    by_spark = data.selectExpr(*(f"{text} AS x{at}" for at, text in enumerate(texts)))
    kinds = [field.dataType for field in by_spark.schema]
    theirs = by_spark.toArrow()
    for at, text in enumerate(texts):
        assert spark_columns(found.schema, None)[at].dataType == kinds[at], text
        for row, (one, other) in enumerate(zip(exact(found.column(at)), exact(theirs.column(at)), strict=True)):
            values = {name: exact(batch.column(name))[row] for name in COLUMNS.names if name in text}
            assert one == other, (text, values)


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=EXAMPLES, deadline=None, phases=UNSHRUNK, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_the_same_rows_meet_a_condition(in_utc: SparkSession, seed: int) -> None:
    random = Random(seed)
    batch = rows(random, 200)
    conditions: list[str] = []
    while len(conditions) < 5:
        text = Expressions(random).of("bool", 3)
        try:
            RowQuery(parsed(None, text), COLUMNS, "UTC")
        except ConfigurationError:
            continue
        conditions.append(text)
    numbered = batch.append_column("row", pa.array(range(200), pa.int64()))
    frame = in_utc.createDataFrame(pa.Table.from_batches([numbered])).coalesce(1)
    for text in conditions:
        kept = RowQuery(parsed(None, text), COLUMNS, "UTC").apply(with_position(batch))
        theirs = frame.where(text).select("row").toArrow().column(0).to_pylist()
        assert kept.column(kept.num_columns - 2).to_pylist() == theirs, text
