"""Each case through Spark's own `kafka` source and through ours, on one broker."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.rigs.stack.tiered_stack import TieredStack
from tests.values.__main__ import asked
from tests.values.asking import create_topic, our_answer
from tests.values.cases import KINDS, Case, read_cases
from tests.values.differences import agree, differing
from tiered_stream import errors

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def brokers(stack: TieredStack) -> dict[str, str]:
    return create_topic(stack)


@pytest.fixture(scope="module")
def answered(spark: SparkSession, brokers: dict[str, str]) -> list[Case]:
    """What Spark's own source says now."""
    return asked(spark, brokers, read_cases())


@pytest.mark.contract(
    "1.2 names in any case",
    "1.2 subscribe",
    "1.2 subscribePattern",
    "1.2 assign",
    "1.2 one of the three",
    "1.2 kafka.bootstrap.servers",
    "1.2 startingTimestamp",
    "1.2 startingOffsetsByTimestamp",
    "1.2 startingOffsets",
    "1.2 startingOffsetsByTimestampStrategy",
    "1.2 endingTimestamp",
    "1.2 endingOffsetsByTimestamp",
    "1.2 endingOffsets",
    "1.2 failOnDataLoss",
    "1.2 includeHeaders",
    "1.2 minPartitions",
    "1.2 maxRecordsPerPartition",
    "1.2 maxOffsetsPerTrigger",
    "1.2 minOffsetsPerTrigger",
    "1.2 maxTriggerDelay",
    "1.2 fetchOffset.numRetries",
    "1.2 fetchOffset.retryIntervalMs",
    "1.2 kafkaConsumer.pollTimeoutMs",
    "1.2 groupIdPrefix",
    "1.2 kafka.group.id",
    "1.2 settings that the source decides",
    "1.2 kafka.isolation.level",
    "1.2 other settings of Kafka's clients",
    "1.4 forms of JSON",
    "2.10",
    "2.11",
    "2.12",
    "2.13",
    "2.14",
    "2.15",
    "2.16",
    "2.17",
    "2.50",
    "2.90",
    "2.95",
    "2.97",
)
def test_each_value_is_taken_or_refused_as_by_spark_s_source(brokers: dict[str, str], answered: list[Case]) -> None:
    found = {}
    for case in answered:
        for kind in KINDS:
            ours = our_answer({**brokers, **case.options()}, kind)
            assert ours.startswith("rows") or hasattr(errors, ours.split()[1])
            if not agree(case.answer(kind), ours):
                found[str(case), kind] = case.answer(kind), ours
    assert sorted(found.items()) == sorted((each, found.get(each)) for each in set(differing()))


def test_what_spark_s_source_answers_is_what_is_written_down(answered: list[Case]) -> None:
    assert answered == read_cases()
