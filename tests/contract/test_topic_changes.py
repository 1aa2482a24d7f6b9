"""Rows of the contract about partitions that come, go and lose records, through Spark on the real stack."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.contract.runs import Found, Runs, by_partition, delete_before, rows
from tests.reading import batch, fill, options, records, stream
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import add_partitions, create_tiered_topic, delete_topic, recreate_topic

ATTEMPTS = {"fetchOffset.retryIntervalMs": "100"}


@pytest.fixture(params=["true", "false"], ids=["fail", "go-on"])
def policy(request: pytest.FixtureRequest) -> str:
    return request.param


def lands(runs: Runs, given: dict[str, str], condition: str, otherwise: Found) -> None:
    """The run fails with this data loss, or goes on with these rows, as the policy says."""
    if given["failOnDataLoss"] == "true":
        with pytest.raises(StreamingQueryException, match=rf"KAFKA_DATA_LOSS\.{condition}\]"):
            runs.land(given)
    else:
        assert runs.land(given) == otherwise


def first_landed(stack: TieredStack, runs: Runs, topic: str, count: int, given: dict[str, str]) -> dict[str, str]:
    """Land a new topic with so many records, and return the options of the next run."""
    fill(stack, topic, records(count))
    again = options(stack, topic, given)
    assert runs.land(again) == rows(range(count))
    return again


@pytest.mark.contract("1.6 new partition above 0", "1.6 names")
def test_an_added_partition_whose_first_records_are_gone(
    stack: TieredStack, runs: Runs, topic: str, policy: str
) -> None:
    given = first_landed(stack, runs, topic, 3, {"failOnDataLoss": policy})
    add_partitions(stack.broker, topic, 2)
    produce_batch(stack.broker, topic, records(5), 1)
    delete_before(stack, topic, 2, 1)
    lands(runs, given, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", rows(range(0), range(2, 5)))


@pytest.mark.contract("1.8 shares of new partitions", "1.8 shares")
def test_a_limit_is_shared_with_an_added_partition_from_its_log_start(
    stack: TieredStack, runs: Runs, topic: str
) -> None:
    given = first_landed(stack, runs, topic, 3, {"failOnDataLoss": "false"})
    add_partitions(stack.broker, topic, 2)
    produce_batch(stack.broker, topic, records(20))
    produce_batch(stack.broker, topic, records(90), 1)
    produce_batch(stack.broker, topic, records(10), 1)
    delete_before(stack, topic, 90, 1)
    assert runs.land({**given, "maxOffsetsPerTrigger": "6"}) == rows(range(3, 23), range(90, 100))
    assert runs.batches[0] == [*((0, n) for n in range(3, 7)), (1, 90), (1, 91)]


@pytest.mark.contract("1.5 lookups that fail", "1.2 fetchOffset.numRetries", "1.2 fetchOffset.retryIntervalMs")
@pytest.mark.parametrize("source", ["kafka", "tiered_stream"])
def test_a_topic_that_is_made_while_it_is_looked_up_is_read(
    stack: TieredStack, spark: SparkSession, topic: str, source: str
) -> None:
    given = options(stack, topic, {"fetchOffset.numRetries": "100000", "fetchOffset.retryIntervalMs": "50"})
    frame = spark.read.format(source).options(**given).load()
    with ThreadPoolExecutor(1) as thread:
        looked_up = thread.submit(lambda: [(row.partition, row.offset) for row in frame.collect()])
        create_tiered_topic(stack.broker, topic)
        found = looked_up.result()
    assert found == []


@pytest.mark.contract("1.6 partition that vanished", "1.6 pattern that finds others", "1.6 names")
@pytest.mark.parametrize("group", [{}, {"kafka.group.id": "g"}], ids=["", "with a group id"])
def test_a_topic_of_a_pattern_vanishes_and_comes_back_as_a_new_one(
    stack: TieredStack, runs: Runs, topic: str, policy: str, group: dict[str, str]
) -> None:
    stays, goes = f"{topic}-stays", f"{topic}-goes"
    for name in (stays, goes):
        fill(stack, name, records(3))
    given = {**options(stack, topic), **group, "failOnDataLoss": policy, "subscribePattern": f"{topic}-(stays|goes)"}
    del given["subscribe"]
    assert len(runs.land(given)) == 6
    delete_topic(stack.broker, goes)
    produce_batch(stack.broker, stays, records(2))
    condition = "PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT" if group else "PARTITIONS_DELETED"
    lands(runs, given, condition, [(0, 3), (0, 4)])
    if policy == "false":
        fill(stack, goes, records(2))
        assert runs.land(given) == [(0, 0), (0, 1)]


@pytest.mark.contract("1.6 subscribed topic that is deleted")
def test_a_subscribed_topic_that_is_deleted_fails_the_query(
    stack: TieredStack, runs: Runs, topic: str, policy: str
) -> None:
    given = first_landed(stack, runs, topic, 3, {"failOnDataLoss": policy, **ATTEMPTS})
    delete_topic(stack.broker, topic)
    with pytest.raises(StreamingQueryException, match="UnknownTopicError"):
        runs.land(given)


@pytest.mark.contract("1.6 range below the log start", "1.6 names")
def test_the_log_start_passes_what_a_stream_was_to_read_next(
    stack: TieredStack, runs: Runs, topic: str, policy: str
) -> None:
    given = first_landed(stack, runs, topic, 3, {"failOnDataLoss": policy})
    produce_batch(stack.broker, topic, records(5))
    delete_before(stack, topic, 6)
    lands(runs, given, "COULD_NOT_READ_OFFSET_RANGE", rows(range(6, 8)))


@pytest.mark.contract("1.6 range beyond the log end", "1.6 range below the log start")
@pytest.mark.parametrize("source", ["tiered_stream", "kafka"])
def test_a_batch_query_reaches_out_of_the_log(
    stack: TieredStack, spark: SparkSession, topic: str, policy: str, source: str
) -> None:
    fill(stack, topic, records(6))
    delete_before(stack, topic, 2)
    patient = {"kafkaConsumer.pollTimeoutMs": "20000", "failOnDataLoss": policy}
    for bounds in ({"startingOffsets": by_partition(topic, 0)}, {"endingOffsets": by_partition(topic, 9)}):
        frame = batch(spark, options(stack, topic, {**patient, **bounds}), source)
        if policy == "true":
            with pytest.raises(Exception, match="OFFSET_RANGE|data may have been lost|failOnDataLoss"):
                frame.collect()
        else:
            assert sorted(row["offset"] for row in frame.collect()) == [2, 3, 4, 5]


@pytest.mark.contract("1.4 no partitions", "1.6 pattern that finds nothing any more")
def test_a_pattern_that_finds_nothing_at_first_reads_the_first_topic_from_its_start(
    stack: TieredStack, runs: Runs, topic: str
) -> None:
    given = {**options(stack, topic), "subscribePattern": f"^{topic}$"}
    del given["subscribe"]
    assert runs.land(given) == []
    fill(stack, topic, records(3))
    assert runs.land(given) == rows(range(3))


@pytest.mark.contract("2.33", "1.6 end below the start", "1.6 topic made again and longer")
@pytest.mark.parametrize(("count", "left"), [(3, range(0)), (8, range(5, 8))], ids=["shorter", "longer"])
def test_a_topic_that_was_made_again_between_two_runs(
    stack: TieredStack, runs: Runs, topic: str, policy: str, count: int, left: range
) -> None:
    given = first_landed(stack, runs, topic, 5, {"failOnDataLoss": policy, **ATTEMPTS})
    recreate_topic(stack.broker, topic)
    produce_batch(stack.broker, topic, records(count))
    lands(runs, given, "TOPIC_RECREATED", rows(left))
    if policy == "false":
        produce_batch(stack.broker, topic, records(2))
        assert runs.land(given) == rows(range(count, count + 2))


@pytest.mark.contract(
    "2.31", "2.32", "2.38", "1.6 pattern that finds nothing any more", "1.6 pattern that finds others"
)
def test_topics_of_a_pattern_come_and_go_under_a_query_that_may_go_on(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    first, second = f"{topic}-1", f"{topic}-2"
    fill(stack, first, records(3))
    given = {**options(stack, topic), "failOnDataLoss": "false", "subscribePattern": f"{topic}-."}
    del given["subscribe"]
    seen: set[tuple[str, int]] = set()

    def land(frame: DataFrame, batch_id: int) -> None:
        seen.update((row[0], row[1]) for row in frame.select("topic", "offset").collect())

    checkpoint = tmp_path / "checkpoint"
    query = stream(spark, given).writeStream.foreachBatch(land).option("checkpointLocation", str(checkpoint)).start()

    def has(topic: str, count: int) -> None:
        wanted = {(topic, offset) for offset in range(count)}
        wait_until(lambda: wanted <= seen or not query.isActive, f"{count} rows of {topic}", pause=0.1)
        assert query.exception() is None

    has(first, 3)
    delete_topic(stack.broker, first)
    query.processAllAvailable()
    fill(stack, second, records(4))
    has(second, 4)
    query.stop()
    logged = [file.read_text().splitlines()[-1] for file in (checkpoint / "offsets").glob("[0-9]*")]
    assert all(orjson.loads(offsets) for offsets in logged)
