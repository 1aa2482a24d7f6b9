"""The metadata-topic locator against a real broker that tiers into a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.locate.golden_locator import read
from tests.locate.segments import segment_ends
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.topics import (
    KEEP_LOCAL,
    create_tiered_topic,
    offsets,
    recreate_topic,
    roll,
    wait_until_tiered,
    wait_until_tiered_to,
)
from tests.rigs.stack.transactions import TransactionalProducer
from tiered_stream.broker.client import BrokerClient
from tiered_stream.errors import UnknownTopicError
from tiered_stream.locate.metadata_topic.metadata_topic_locator import MetadataTopicLocator
from tiered_stream.model import OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

pytestmark = pytest.mark.stack

ALL = OffsetRange(0, 1 << 40)
HOUR_MS = 3_600_000


@pytest.fixture
def locator(stack: TieredStack) -> Iterator[MetadataTopicLocator]:
    with locator_of(stack) as made:
        yield made


@contextmanager
def locator_of(stack: TieredStack) -> Iterator[MetadataTopicLocator]:
    fetcher = LocalLayoutFetcher(FileStore(stack.tier_dir))
    with BrokerClient({"bootstrap.servers": stack.bootstrap_servers}) as client:
        made = MetadataTopicLocator(client, fetcher, IsolationLevel.READ_COMMITTED)
        yield made
        made.close()


def offsets_read(stack: TieredStack, locations: tuple[SegmentLocation, ...]) -> list[int]:
    """The offsets of the records that an executor would give for these locations."""
    fetcher = LocalLayoutFetcher(FileStore(stack.tier_dir))
    return [offset for location in locations for offset, _ in read(fetcher, location)]


def send_hours(producer: RawProducer, topic: str, hours: range, partition: int = 0) -> None:
    """Ten records an hour: with `segment.ms` below an hour, each batch starts a segment."""
    for hour in hours:
        records = [Record(value=b"v", timestamp_ms=1_700_000_000_000 + hour * HOUR_MS) for _ in range(10)]
        producer.send(topic, records, partition)


def test_tiered_segments_are_located_and_news_is_taken_in(
    stack: TieredStack, locator: MetadataTopicLocator, topic: str
) -> None:
    here, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    create_tiered_topic(stack.broker, topic, partitions=2, config={"segment.ms": "1000", **KEEP_LOCAL})
    with RawProducer(stack.broker) as producer:
        send_hours(producer, topic, range(5))
        wait_until_tiered(stack.broker, topic, deleted_locally=False)
        located = locator.locate({here: ALL, other: ALL})
        assert [location.offsets for location in located[here]] == [OffsetRange(at, at + 10) for at in range(0, 40, 10)]
        assert located[other] == ()
        assert offsets_read(stack, located[here]) == list(range(40))
        assert segment_ends(locator, {here: OffsetRange(5, 30)}) == {here: (10, 20, 30)}

        send_hours(producer, topic, range(5, 7))
        send_hours(producer, topic, range(2), partition=1)
        wait_until_tiered(stack.broker, topic, deleted_locally=False)
        located = locator.locate({here: OffsetRange(35, 55), other: ALL})
        assert offsets_read(stack, located[here]) == list(range(35, 55))
        assert offsets_read(stack, located[other]) == list(range(10))


def test_nothing_below_the_log_start_is_located(stack: TieredStack, locator: MetadataTopicLocator, topic: str) -> None:
    from kafka import TopicPartition as KafkaTopicPartition

    here = TopicPartition(topic, 0)
    create_tiered_topic(stack.broker, topic, config={"segment.ms": "1000"})
    with RawProducer(stack.broker) as producer:
        send_hours(producer, topic, range(4))
    wait_until_tiered(stack.broker, topic)
    with stack.broker.admin() as admin:
        admin.delete_records({KafkaTopicPartition(topic, 0): 15})
    located = locator.locate({here: ALL})
    assert offsets_read(stack, located[here]) == list(range(15, 30))


def test_a_transaction_whose_abort_marker_is_not_tiered_is_found_at_the_seam(
    stack: TieredStack, locator: MetadataTopicLocator, topic: str
) -> None:
    here = TopicPartition(topic, 0)
    create_tiered_topic(stack.broker, topic)
    with TransactionalProducer(stack.broker, topic) as aborted, RawProducer(stack.broker) as plain:
        plain.send(topic, [Record()] * 5)
        aborted.send(topic, [Record()] * 5)
        roll(stack.broker, topic)  # a record at offset 10 begins the new segment
        aborted.abort()
        wait_until_tiered_to(stack.broker, topic, {0: 10})
        (location,) = locator.locate({here: OffsetRange(0, 10)})[here]
        assert offsets_read(stack, (location,)) == list(range(5))
        assert [(each.producer_id, each.first_offset) for each in location.aborted_transactions] == [
            (aborted.producer_id, 5)
        ]


@pytest.mark.parametrize("kept_locally", [True, False])
def test_it_is_found_also_where_nothing_can_be_fetched_at_the_seam(
    stack: TieredStack, locator: MetadataTopicLocator, topic: str, kept_locally: bool
) -> None:
    """The segment after the tier begins with an open transaction, so the last stable offset is the seam."""
    here = TopicPartition(topic, 0)
    create_tiered_topic(stack.broker, topic, config={"segment.ms": "1000", **(KEEP_LOCAL if kept_locally else {})})
    with (
        TransactionalProducer(stack.broker, f"{topic}-aborted") as aborted,
        TransactionalProducer(stack.broker, f"{topic}-open") as left_open,
        RawProducer(stack.broker) as plain,
    ):
        plain.send(topic, [Record()] * 5)
        aborted.send(topic, [Record()] * 5)
        left_open.send(topic, [Record(timestamp_ms=1_700_000_000_000 + HOUR_MS)])
        aborted.abort()
        wait_until_tiered_to(stack.broker, topic, {0: 10})
        if not kept_locally:
            wait_until(lambda: offsets(stack.broker, topic, OffsetSpec.EARLIEST_LOCAL) == {0: 10}, "local deletion")
        located = locator.locate({here: ALL})[here]
        assert [location.offsets for location in located] == [OffsetRange(0, 10)]
        assert offsets_read(stack, located) == list(range(5))
        left_open.abort()


@pytest.mark.slow
def test_segments_of_several_leaders_are_located(restarted_stack: TieredStack, topic: str) -> None:
    stack, here = restarted_stack, TopicPartition(topic, 0)
    create_tiered_topic(stack.broker, topic, config={"segment.ms": "1000"})
    with locator_of(stack) as locator:
        for leader in range(3):
            with RawProducer(stack.broker) as producer:
                send_hours(producer, topic, range(2 * leader, 2 * leader + 2))
            wait_until_tiered(stack.broker, topic)
            located = locator.locate({here: ALL})[here]
            assert offsets_read(stack, located) == list(range(20 * leader + 10))
            stack.broker.stop()
            stack.broker.start()
    epochs = {entry.epoch for location in located for entry in location.segment.leader_epochs}
    assert len(epochs) == 3


def test_a_topic_that_was_deleted_and_made_again_is_another_topic(
    stack: TieredStack, locator: MetadataTopicLocator, topic: str
) -> None:
    """Its leader's epoch and its offsets are those of its predecessor, which ended in an aborted transaction."""
    here = TopicPartition(topic, 0)
    create_tiered_topic(stack.broker, topic)
    with TransactionalProducer(stack.broker, topic) as aborted, RawProducer(stack.broker) as plain:
        aborted.send(topic, [Record()] * 10)
        roll(stack.broker, topic)
        aborted.abort()
        wait_until_tiered_to(stack.broker, topic, {0: 10})
        (before,) = locator.locate({here: OffsetRange(0, 10)})[here]
        assert offsets_read(stack, (before,)) == []
        recreate_topic(stack.broker, topic)
        plain.send(topic, [Record()] * 10)
    roll(stack.broker, topic)
    wait_until_tiered_to(stack.broker, topic, {0: 10})
    (location,) = locator.locate({here: OffsetRange(0, 10)})[here]
    assert location.segment.topic_id != before.segment.topic_id
    assert offsets_read(stack, (location,)) == list(range(10))


def test_a_topic_that_does_not_exist_is_named(locator: MetadataTopicLocator) -> None:
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        locator.locate({TopicPartition("no-such-topic", 0): ALL})
