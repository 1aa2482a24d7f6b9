"""Locations from a real gateway before a real broker, and the rows that come of them."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest

from tests.gateway.reading import options, tiered_only
from tests.gateway.running import RunningGateway
from tests.locate.segments import segment_ends
from tests.reading import BY_STEP, SEGMENT_STEP_MS, records, tier_segments
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.consume import READ_COMMITTED, READ_UNCOMMITTED, read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.topics import KEEP_LOCAL, create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tests.rigs.stack.wire import BrokerConnection
from tests.tasks import plan, read
from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.locate.metadata_topic.metadata_topic_locator import MetadataTopicLocator
from tiered_stream.model import OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def test_rows_come_by_signed_locations_alone_and_no_tiered_byte_through_brokers(
    stack: TieredStack, gateway: RunningGateway, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2)
    produce_bulk(stack.broker, topic, 60_000)
    roll(stack.broker, topic)
    ends = wait_until_tiered(stack.broker, topic)
    asked = options(gateway, topic)
    assert asked.storage.uri is None
    splits = plan(asked)
    rows, metrics = read(splits, asked)
    assert rows == read_topic(stack.broker, topic)
    assert metrics.remote_fetch_bytes > 6_000_000 and metrics.remote_fetch_fallbacks == 0
    tiered = tiered_only(splits)
    assert {split.topic_partition.partition: split.offsets.end for split in tiered} == ends
    assert read(tiered, asked)[1].broker_fetch_bytes == 0
    shown = repr(splits) + gateway.log_file.read_text()
    assert "Signature" not in shown and stack.secret_key not in shown
    assert all(each.signed_url for split in pickle.loads(pickle.dumps(tiered)) for each in split.locations)


def test_transactions_are_filtered_as_by_a_consumer(stack: TieredStack, gateway: RunningGateway, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, config=BY_STEP)
    with (
        TransactionalProducer(stack.broker, f"{topic}-a") as one,
        TransactionalProducer(stack.broker, f"{topic}-b") as two,
    ):
        for step in range(6):
            time = 1_700_000_000_000 + step * SEGMENT_STEP_MS
            one.send(topic, records(20, step * 100, timestamp_ms=time))
            two.send(topic, records(20, step * 100 + 50, timestamp_ms=time))
            if step == 2:
                one.abort()
            if step == 3:
                two.commit()
        one.abort()
        two.commit()
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic)
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        asked = options(gateway, topic, {"kafka.isolation.level": isolation})
        rows, metrics = read(plan(asked), asked)
        assert rows == read_topic(stack.broker, topic, isolation)
        assert metrics.remote_fetch_bytes and not metrics.remote_fetch_fallbacks


def test_the_broker_locator_says_what_the_metadata_topic_says(
    stack: TieredStack, gateway: RunningGateway, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2)
    produce_bulk(stack.broker, topic, 30_000, properties={"batch.size": "4000"})
    roll(stack.broker, topic)
    ends = wait_until_tiered(stack.broker, topic)
    ranges = {
        TopicPartition(topic, 0): OffsetRange(100, ends[0] - 3),
        TopicPartition(topic, 1): OffsetRange(0, ends[1]),
    }
    committed = IsolationLevel.READ_COMMITTED
    with (
        BrokerClient({"bootstrap.servers": stack.bootstrap_servers}) as direct,
        BrokerClient({"bootstrap.servers": gateway.bootstrap_servers}) as through,
    ):
        reference = MetadataTopicLocator(direct, LocalLayoutFetcher(FileStore(stack.tier_dir)), committed)
        locator = BrokerLocator(through, committed, part_bytes=1 << 30)
        expected = reference.locate(ranges)
        found = locator.locate(ranges)
        for partition, locations in expected.items():
            assert [described(each) for each in found[partition]] == [described(each) for each in locations]
        assert segment_ends(locator, ranges) == segment_ends(reference, ranges)
        large = found[TopicPartition(topic, 1)][0]
        cut = locator.cut_all([(large, 200_000)])[0]
        cut_by_reference = reference.cut(expected[TopicPartition(topic, 1)][0], 200_000)
        assert [(each.offsets, each.bytes) for each in cut] == [(each.offsets, each.bytes) for each in cut_by_reference]
        assert len(cut) > 1
        in_parts = BrokerLocator(through, committed, part_bytes=200_000).locate(ranges)[TopicPartition(topic, 1)]
        assert [each.offsets for each in in_parts[: len(cut)]] == [each.offsets for each in cut]
        reference.close()


def described(location: SegmentLocation) -> tuple[object, ...]:
    return location.offsets, location.bytes, location.following, location.segment.segment_id


def test_what_the_broker_still_has_is_named_only_when_it_is_wanted(
    stack: TieredStack, gateway: RunningGateway, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic, config={**BY_STEP, **KEEP_LOCAL})
    produce_bulk(stack.broker, topic, 20_000)
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic, deleted_locally=False)
    assert tiered_only(plan(options(gateway, topic)))
    assert not tiered_only(plan(options(gateway, topic, {"remote.prefer": "local"})))


def test_a_broker_that_restarts_is_waited_for(restarted_stack: TieredStack, tmp_path: Path, topic: str) -> None:
    stack = restarted_stack
    with RunningGateway(tmp_path / "gateway", stack.options()) as gateway:
        end = tier_segments(stack, topic, [50, 60])
        asked = options(gateway, topic)
        before = read(plan(asked), asked)[0]
        stack.broker.kill()
        stack.broker.start()
        rows, metrics = read(plan(asked), asked)
        assert rows == before and len(rows) == end
        assert metrics.remote_fetch_bytes
        wait_until(lambda: gateway.health()[0] == 200, "the gateway to be healthy")


def test_the_monitor_tells_of_health_and_counts(gateway: RunningGateway) -> None:
    assert gateway.health() == (200, "healthy\n")
    assert gateway.metric('located_partitions_total{result="answered"}') > 0
    assert gateway.metric("signed_locations_total") > 0
    assert gateway.page("nothing")[0] == 404


def test_a_gateway_asked_to_end_lets_a_request_under_way_have_its_response(
    stack: TieredStack, tmp_path: Path, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic)
    kind = FetchRequest.FetchTopic
    with (
        RunningGateway(tmp_path / "ending", stack.options()) as ending,
        BrokerConnection(ending.bootstrap_servers) as connection,
    ):
        (described,) = connection.request(
            MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        ).topics
        partition = kind.FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1)
        waiting = FetchRequest(
            max_wait_ms=4_000, min_bytes=1, topics=[kind(topic_id=described.topic_id, partitions=[partition])],
            forgotten_topics_data=[], rack_id="",
        )  # fmt: skip
        began = time.monotonic()
        sent = 'bytes_total{direction="to_broker"}'
        before = ending.metric(sent)

        def end() -> None:
            wait_until(lambda: ending.metric(sent) > before, "the Fetch to be under way", pause=0.05)
            ending.stop()

        ender = threading.Thread(target=end)
        ender.start()
        answer = connection.request(waiting)
        assert answer.responses[0].partitions[0].error_code == 0
        assert time.monotonic() - began > 3
        ender.join()
        assert not ending.process.running
