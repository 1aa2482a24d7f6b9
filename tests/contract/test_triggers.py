"""Rows of the contract about limits and triggers, through Spark on the real stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.contract.runs import Runs, rows
from tests.reading import fill, options, records, stream
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.tiered_stack import TieredStack

LAGS = (101, 11, 1)


@pytest.fixture
def lagging(stack: TieredStack, topic: str) -> str:
    fill(stack, topic, *map(records, LAGS))
    return topic


@pytest.mark.contract("2.27", "1.8 shares", "1.2 maxOffsetsPerTrigger")
def test_a_limit_of_10_is_shared_as_8_1_and_1_then_as_9_and_1(stack: TieredStack, runs: Runs, lagging: str) -> None:
    assert runs.land(options(stack, lagging, {"maxOffsetsPerTrigger": "10"})) == rows(*map(range, LAGS))
    assert runs.batches[:2] == [
        [*((0, n) for n in range(8)), (1, 0), (2, 0)],
        [*((0, n) for n in range(8, 17)), (1, 1)],
    ]


@pytest.mark.contract("2.26", "1.2 maxOffsetsPerTrigger")
def test_the_highest_limit_does_not_overflow(stack: TieredStack, runs: Runs, lagging: str) -> None:
    assert runs.land(options(stack, lagging, {"maxOffsetsPerTrigger": str(2**63 - 1)})) == rows(*map(range, LAGS))
    assert len(runs.batches) == 1


@pytest.mark.contract("2.27", "2.28", "2.30", "1.8 Trigger.Once")
@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "10"}, {"minOffsetsPerTrigger": "1000"}])
@pytest.mark.filterwarnings("ignore:.*once.*")
def test_trigger_once_takes_all_there_is(
    stack: TieredStack, spark: SparkSession, lagging: str, limit: dict[str, str], tmp_path: Path
) -> None:
    writer = stream(spark, options(stack, lagging, limit)).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(once=True).start()
    query.awaitTermination()
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [sum(LAGS)]


@pytest.mark.contract("1.8 least under AvailableNow")
def test_available_now_reads_all_there_was_whatever_the_least(stack: TieredStack, runs: Runs, topic: str) -> None:
    fill(stack, topic, records(7))
    limits = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "3"}
    assert runs.land(options(stack, topic, limits)) == rows(range(7))
    assert [len(found) for found in runs.batches] == [3, 3, 1]


@pytest.mark.contract(
    "2.28", "2.29", "1.8 least offsets", "1.8 least and most", "1.2 minOffsetsPerTrigger", "1.2 maxTriggerDelay"
)
def test_the_least_is_waited_for_and_the_most_caps_it(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    fill(stack, topic, records(5))
    limits = {"minOffsetsPerTrigger": "15", "maxOffsetsPerTrigger": "20", "maxTriggerDelay": "1d"}
    given = options(stack, topic, limits)
    batches: list[int] = []

    def land(frame: DataFrame, batch_id: int) -> None:
        batches.append(frame.count())

    def start(given: dict[str, str]) -> StreamingQuery:
        writer = stream(spark, given).writeStream.foreachBatch(land)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start(given)
    query.processAllAvailable()
    assert batches == [5]  # the first trigger does not wait
    produce_batch(stack.broker, topic, records(8))  # too few to fire
    produce_batch(stack.broker, topic, records(14))
    query.processAllAvailable()  # until the batch is committed, too: stopped before that, it would be repeated
    assert batches == [5, 20]
    query.stop()
    query = start({**given, "maxTriggerDelay": "1ms"})  # which has passed whenever it is asked for
    query.processAllAvailable()
    query.stop()
    assert batches == [5, 20, 2]
