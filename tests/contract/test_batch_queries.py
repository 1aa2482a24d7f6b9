"""Rows of the contract about batch queries, through Spark, beside its own `kafka` source on one broker."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.contract.runs import by_partition, found, rows
from tests.reading import batch, fill, options, records
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack

TOPIC = "bounds"
LATE = 10_000


@pytest.fixture(scope="module")
def bounds(stack: TieredStack) -> Mapping[str, str]:
    """A topic of three partitions with ten records each, at 0, 1000, … 9000 ms."""
    fill(stack, TOPIC, *[[Record(value=b"v", timestamp_ms=n * 1000) for n in range(10)]] * 3)
    return options(stack, TOPIC)


at = partial(by_partition, TOPIC)


REFUSED = (
    "latest|earliest|MISMATCHED_TOPIC_PARTITIONS|DOES_NOT_MATCH_ASSIGNED|RESOLVED_START_OFFSET_GREATER"
    "|greater than the end offset|should have the same topic-partitions|don't match what are assigned"
)
ALL = (range(10), range(10), range(10))
BY_TIMES = (range(2, 10), range(5, 10), range(10))


@pytest.mark.contract(
    "2.58", "2.59", "2.61", "2.62", "2.63", "2.64", "2.65", "2.67", "2.68", "1.5 timestamps -1 and -2",
    "1.5 timestamps", "1.5 no match at the end", "1.2 startingTimestamp", "1.2 startingOffsetsByTimestamp",
    "1.2 endingTimestamp", "1.2 endingOffsetsByTimestamp", "1.2 endingOffsets",
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "earliest"}, ALL),
        ({"startingOffsets": at(-2, 3, 10), "endingOffsets": at(7, -1, 10)}, (range(7), range(3, 10), range(0))),
        (
            {"startingOffsetsByTimestamp": at(2000, 4500, 0), "endingOffsetsByTimestamp": at(5000, 8500, LATE)},
            (range(2, 5), range(5, 9), range(10)),
        ),
        (
            {"startingOffsetsByTimestamp": at(2000, 4500, 0), "endingOffsets": at(7, -1, 10)},
            (range(2, 7), range(5, 10), range(10)),
        ),
        (
            {"startingOffsets": at(1, 0, -2), "endingOffsetsByTimestamp": at(5000, 8500, LATE)},
            (range(1, 5), range(9), range(10)),
        ),
        ({"startingOffsetsByTimestamp": at(2000, 4500, 0)}, BY_TIMES),
        ({"endingOffsetsByTimestamp": at(2000, 4500, LATE)}, (range(2), range(5), range(10))),
        ({"startingTimestamp": "2500", "endingTimestamp": "8000"}, (range(3, 8),) * 3),
        ({"endingTimestamp": str(LATE)}, ALL),
        ({"startingTimestamp": "9000", "startingOffsetsByTimestamp": at(0, 0, 0)}, (range(9, 10),) * 3),
        ({"startingTimestamp": "-2", "endingTimestamp": "-1"}, ALL),
        ({"startingTimestamp": "-3"}, (range(9, 10),) * 3),
    ],
)  # fmt: skip
def test_bounds_are_those_of_spark_s_source(
    spark: SparkSession, bounds: Mapping[str, str], given: dict[str, str], expected: tuple[range, ...]
) -> None:
    common = {name: value for name, value in bounds.items() if name != "startingOffsets"}
    assert found(spark, {**common, **given}) == found(spark, {**common, **given}, "kafka") == rows(*expected)


@pytest.mark.contract("2.66", "1.5 no match at the start")
@pytest.mark.parametrize("source", ["tiered_stream", "kafka"])
def test_a_start_without_a_match_fails(spark: SparkSession, bounds: Mapping[str, str], source: str) -> None:
    late = {**bounds, "startingTimestamp": str(LATE)}
    with pytest.raises(PySparkException, match="(?i)no offset +matched"):
        found(spark, late, source)
    assert found(spark, {**late, "startingOffsetsByTimestampStrategy": "latest"}, source) == []


@pytest.mark.contract("2.69")
def test_a_union_with_itself_has_each_row_twice(spark: SparkSession, bounds: Mapping[str, str]) -> None:
    frame = batch(spark, bounds)
    assert frame.union(frame).groupBy("partition", "offset").count().where("count = 2").count() == 30


@pytest.mark.contract("1.5 late binding", "2.57", "2.74")
def test_a_data_frame_keeps_what_was_there_when_it_was_first_used(
    stack: TieredStack, spark: SparkSession, topic: str
) -> None:
    fill(stack, topic, *[records(5)] * 3)
    frame = batch(spark, options(stack, topic, {"minPartitions": "6"}))
    assert frame.count() == 15
    assert frame.selectExpr("spark_partition_id()").distinct().count() >= 6
    produce_batch(stack.broker, topic, records(7, first=5), 1)
    assert frame.count() == 15
    assert batch(spark, options(stack, topic, {"minPartitions": "6"})).count() == 22


@pytest.mark.contract(
    "1.2 startingOffsets", "1.2 endingOffsets", "1.5 all partitions", "1.5 maps of a batch query",
    "1.5 start beyond the end", "2.71", "2.75", "2.76", "2.93",
)  # fmt: skip
@pytest.mark.parametrize("source", ["tiered_stream", "kafka"])
@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": at(-1, 0, 0)},
        {"endingOffsets": "earliest"},
        {"endingOffsets": at(-2, 0, 0)},
        {"startingOffsets": at(2, 0, 0), "endingOffsets": at(1, 0, 0)},
        {"startingOffsets": at(2, 0, 0), "endingOffsets": at(3, 0)},
        {"startingOffsets": at(2, 0)},
        {"startingOffsetsByTimestamp": at(2, 0, 0, 0)},
        {"startingOffsets": at(11, 0, 0)},
        {"startingOffsets": at(8, 0, 0), "endingTimestamp": "5000"},
    ],
)
def test_bounds_that_cannot_be_are_refused(
    spark: SparkSession, bounds: Mapping[str, str], given: dict[str, str], source: str
) -> None:
    with pytest.raises(Exception, match=REFUSED):
        found(spark, {**bounds, **given}, source)
