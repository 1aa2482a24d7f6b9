"""Spark's filters as what may be left out; what is left is read from golden archives, without Spark."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from tests.archives import PLAIN, archive_options
from tests.depth import examples
from tiered_stream.delta.schema.sql_types import arrow_schema
from tiered_stream.errors import ConfigurationError
from tiered_stream.plan.pruning import EVERY, Numbers, Pruning
from tiered_stream.spark.pushdown import pruning_of
from tiered_stream.spark.source import (
    BatchReader,
    PruningBatchReader,
    TieredStreamDataSource,
    spark_schema,
)
from tiered_stream.spark.stream_reader import StreamReader

TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)
MS = 1_772_366_400_000
OFFSET, TIMESTAMP, TOPIC = ("offset",), ("timestamp",), ("topic",)


@pytest.mark.parametrize(
    ("one", "offsets"),
    [
        (EqualTo(OFFSET, 5), Numbers.of([5])),
        (EqualNullSafe(OFFSET, 5), Numbers.of([5])),
        (GreaterThan(OFFSET, 5), Numbers.between(first=6)),
        (GreaterThanOrEqual(OFFSET, 5), Numbers.between(first=5)),
        (LessThan(OFFSET, 5), Numbers.between(last=4)),
        (LessThanOrEqual(OFFSET, 5), Numbers.between(last=5)),
        (In(OFFSET, (7, None, 5)), Numbers.of([5, 7])),
        (GreaterThan(OFFSET, 2**63 - 1), Numbers(())),
    ],
)
def test_comparisons_bound_whole_numbers(one: Filter, offsets: Numbers) -> None:
    assert pruning_of([one]) == Pruning(offsets=offsets)


@pytest.mark.parametrize(
    ("one", "timestamps"),
    [
        (EqualTo(TIMESTAMP, TIME), Numbers.of([MS])),
        (EqualTo(TIMESTAMP, TIME + timedelta(microseconds=1)), Numbers(())),
        (GreaterThan(TIMESTAMP, TIME), Numbers.between(MS + 1)),
        (GreaterThanOrEqual(TIMESTAMP, TIME), Numbers.between(MS)),
        (GreaterThanOrEqual(TIMESTAMP, TIME + timedelta(microseconds=1)), Numbers.between(MS + 1)),
        (GreaterThan(TIMESTAMP, TIME - timedelta(microseconds=1)), Numbers.between(MS)),
        (LessThan(TIMESTAMP, TIME), Numbers.between(last=MS - 1)),
        (LessThan(TIMESTAMP, TIME + timedelta(microseconds=1)), Numbers.between(last=MS)),
        (LessThanOrEqual(TIMESTAMP, TIME - timedelta(microseconds=1)), Numbers.between(last=MS - 1)),
        (In(TIMESTAMP, (TIME, TIME + timedelta(microseconds=1))), Numbers.of([MS])),
        (EqualTo(TIMESTAMP, TIME.astimezone(timezone(timedelta(hours=-9)))), Numbers.of([MS])),
        (LessThan(TIMESTAMP, datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)), Numbers.between(last=-1)),
    ],
)
def test_timestamps_go_from_microseconds_in_any_zone_to_the_milliseconds_of_records(
    one: Filter, timestamps: Numbers
) -> None:
    assert pruning_of([one]) == Pruning(timestamps=timestamps)


@pytest.mark.parametrize(
    "one",
    [
        EqualNullSafe(OFFSET, None), EqualTo(OFFSET, "5"), EqualTo(OFFSET, 5.0), EqualTo(OFFSET, True),
        In(OFFSET, (5, "6")), Not(EqualTo(OFFSET, 5)), IsNotNull(OFFSET), EqualTo(("value",), b"x"),
        EqualTo(("headers", "offset"), 5), EqualTo(TIMESTAMP, TIME.replace(tzinfo=None)), LessThan(TOPIC, "t"),
        StringStartsWith(TOPIC, "t"), EqualTo(("timestampType",), 0), In(TOPIC, ("a", 5)),
    ],
)  # fmt: skip
def test_what_is_not_known_for_certain_leaves_out_nothing(one: Filter) -> None:
    assert pruning_of([one]) == Pruning()


def test_filters_are_joined_by_and() -> None:
    found = pruning_of([In(TOPIC, ("a", "b", None)), EqualTo(TOPIC, "b"), GreaterThan(OFFSET, 3), LessThan(OFFSET, 9)])
    assert found == Pruning(topics=frozenset("b"), offsets=Numbers.between(4, 8))
    assert pruning_of([]) == Pruning(None, EVERY, EVERY, EVERY)


def reader(**given: str) -> BatchReader:
    options = archive_options(PLAIN, {"subscribe": "s32-txn", "remote.split.bytes": "64k", **given})
    source = TieredStreamDataSource(CaseInsensitiveDict(options))
    made = source.reader(source.schema())
    assert isinstance(made, BatchReader)
    return made


def rows(planned: BatchReader, partitions: Iterable[Any]) -> list[dict[str, Any]]:
    """As tasks give them: by a reader that has been pickled."""
    task: BatchReader = pickle.loads(pickle.dumps(planned))
    table = [row for partition in partitions for batch in task.read(partition) for row in micros(batch).to_pylist()]
    return sorted(table, key=lambda row: (row["partition"], row["offset"]))


def micros(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))


@pytest.fixture(scope="module")
def every() -> list[dict[str, Any]]:
    plain = reader()
    return rows(plain, plain.partitions())


COMPARED: dict[type[Any], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq, EqualNullSafe: operator.eq, GreaterThan: operator.gt, GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt, LessThanOrEqual: operator.le,
}  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_rows_that_pass_are_all_read_whatever_the_filters(data: st.DataObject, every: list[dict[str, Any]]) -> None:
    filters: list[Filter] = []
    passing = every
    for column in data.draw(st.lists(st.sampled_from(["partition", "offset", "timestamp"]), min_size=1, max_size=3)):
        row, kind = data.draw(st.sampled_from(every)), data.draw(st.sampled_from(list(COMPARED)))
        value = row[column] + (data.draw(st.sampled_from([-1, 0, 0, 1])) if column == "timestamp" else 0)
        shown = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value) if column == "timestamp" else value
        filters.append(kind((column,), shown))
        passing = [row for row in passing if COMPARED[kind](row[column], value)]
    pruned = reader(**{"remote.filter.pushdown": "true"})
    assert isinstance(pruned, PruningBatchReader) and list(pruned.pushFilters(filters)) == filters
    found = rows(pruned, pruned.partitions())
    assert len(found) <= len(every)
    for one in filters:
        name, against = one.attribute[0], one.value  # type: ignore[attr-defined]
        if name == "timestamp":
            against = (against - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        found = [row for row in found if COMPARED[type(one)](row[name], against)]
    assert found == passing


OFFSET_COLUMN, VALUE, TIME_COLUMN = (
    spark_schema(include_headers=True)[name] for name in ("offset", "value", "timestamp")
)


@pytest.mark.parametrize("columns", [[OFFSET_COLUMN], [VALUE, OFFSET_COLUMN], [TIME_COLUMN, VALUE]])
def test_a_users_schema_may_name_columns_with_their_types(columns: list[StructField]) -> None:
    schema = StructType(columns)
    made = TieredStreamDataSource(CaseInsensitiveDict(archive_options(PLAIN, {"subscribe": "s32-txn"}))).reader(schema)
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    assert all(batch.schema == arrow_schema(schema) for batch in batches)
    assert sum(batch.num_rows for batch in batches) == sum(1 for _ in rows(reader(), reader().partitions()))


@pytest.mark.contract("1.3 own schema")
@pytest.mark.parametrize(
    "columns",
    [
        [],
        [StructField("offset", IntegerType())],
        [StructField("OFFSET", LongType())],
        [StructField("value", StringType())],
        [StructField("rowid", LongType())],
        [StructField("offset", LongType(), nullable=False)],
        [StructField("headers", ArrayType(StringType()))],
        [OFFSET_COLUMN, OFFSET_COLUMN],
        [OFFSET_COLUMN, VALUE, StructField("partition", LongType())],
    ],
    ids=lambda columns: StructType(columns).simpleString(),
)
def test_any_other_schema_is_refused(columns: list[StructField]) -> None:
    source = TieredStreamDataSource(CaseInsensitiveDict(archive_options(PLAIN, {"subscribe": "s32-txn"})))
    with pytest.raises(ConfigurationError, match="schema .*columns"):
        source.reader(StructType(columns))


def test_a_stream_takes_columns_by_the_option_alone() -> None:
    given = archive_options(PLAIN, {"subscribe": "s32-txn", "columns": "offset,value"})
    source = TieredStreamDataSource(CaseInsensitiveDict(given))
    assert source.schema().simpleString() == "struct<offset:bigint,value:binary>"
    assert isinstance(source.streamReader(source.schema()), StreamReader)
    with pytest.raises(ConfigurationError, match="struct<offset:bigint,value:binary>; .*option"):
        source.streamReader(spark_schema(include_headers=False)).initialOffset()


def test_without_the_option_spark_may_have_pushdown_on_or_off() -> None:
    """It refuses a reader that has `pushFilters` of its own where pushdown is off."""
    assert "pushFilters" not in vars(BatchReader)
    assert type(reader()) is BatchReader
