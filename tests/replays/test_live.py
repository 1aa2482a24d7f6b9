"""A replay from a running cluster: what a dry run says beforehand, and what brokers are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ACLOperation
from pyspark.sql import SparkSession

from tests.broker.secure import grant, login_module
from tests.delta.archive import landed
from tests.replays.topics import APPEND_TIME, CREATE_TIME, TOPICS, ReplayedTopics
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic
from tests.services import Cluster
from tiered_stream.errors import BrokerAuthorizationError
from tiered_stream.plan.read_cost import NO_LOCATOR, NOT_TIERED_YET
from tiered_stream.replays.run_replay import Replay, plan_replay
from tiered_stream.replays.table_and_folder_targets import DeltaTarget

pytestmark = [pytest.mark.stack, pytest.mark.slow]

LATE = 4_102_444_800_000
"""2100: the topics' records are of tomorrow."""


def planned(spark: SparkSession, folder: Path, options: Mapping[str, str], **arguments: Any) -> Replay:
    target = DeltaTarget(spark, str(folder / "table"), options)
    return plan_replay(target, now_ms=LATE, **arguments)


@pytest.mark.parametrize("exact", [False, True])
def test_a_dry_run_says_what_storage_and_brokers_then_give(
    stack: TieredStack, topics: ReplayedTopics, spark: SparkSession, tmp_path: Path, exact: bool
) -> None:
    given = {**stack.options(), "subscribe": ",".join(TOPICS), "includeHeaders": "true"}
    given |= {"maxOffsetsPerTrigger": "100"}
    times = topics.times()
    first, last = times[len(times) // 3], times[-len(times) // 3]
    replay = planned(spark, tmp_path, given, from_time=str(first), to_time=str(last), exact=exact)
    figures, metrics = replay.estimate(), replay.run().metrics
    assert figures.total("storage_bytes") == pytest.approx(metrics.remote_fetch_bytes, rel=0.02)
    assert figures.total("gets") == pytest.approx(metrics.remote_fetch_requests, rel=0.02)
    assert (figures.total("broker_offsets") > 0) is (metrics.broker_fetch_requests > 0) is exact
    assert {each.broker_reason for each in figures.partitions if each.broker_offsets} <= {NOT_TIERED_YET}
    assert landed(tmp_path / "table").num_rows == metrics.records <= figures.total("offsets")


def test_without_a_locator_a_dry_run_says_why_all_comes_from_brokers(
    stack: TieredStack, topics: ReplayedTopics, spark: SparkSession, tmp_path: Path
) -> None:
    given = {**stack.options(), "subscribe": APPEND_TIME, "remote.log.locator": "none"}
    figures = planned(spark, tmp_path, given, from_time="0").estimate()
    (partition,) = figures.partitions
    assert (partition.broker_reason, partition.storage_bytes, partition.gets) == (NO_LOCATOR, 0, 0)
    assert partition.broker_offsets == partition.offsets > 0 and figures.seconds > 0


def test_partitions_of_a_topic_are_replayed_alone(
    stack: TieredStack, topics: ReplayedTopics, spark: SparkSession, tmp_path: Path
) -> None:
    given = {**stack.options(), "assign": f'{{"{CREATE_TIME}":[1]}}', "includeHeaders": "true"}
    planned(spark, tmp_path, given, from_time="0").run()
    offsets = landed(tmp_path / "table")["offset"].to_pylist()
    assert offsets == [row.offset for row in topics.rows[CREATE_TIME] if row.partition == 1]


def test_a_topic_that_may_not_be_read_is_refused_and_nothing_is_written(
    cluster: Cluster, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    broker = cluster.stack.broker
    create_tiered_topic(broker, topic)
    with RawProducer(broker) as producer:
        producer.send(topic, [Record(value=b"v")])
    with broker.admin() as admin:
        admin.create_acls(grant("heidi", topic, ACLOperation.DESCRIBE))
    given = {
        "kafka.bootstrap.servers": broker.address("PLAIN"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login_module("PLAIN", "heidi", "heidi-secret"),
        "remote.log.locator": "none",
        "subscribe": topic,
    }
    with pytest.raises(BrokerAuthorizationError, match="READ on the topic") as refused:
        planned(spark, tmp_path, given, from_time="0")
    assert "heidi-secret" not in str(refused.value)
    assert not (tmp_path / "table").exists()
