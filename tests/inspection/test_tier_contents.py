"""What is tiered, by scripted brokers: copies that do not count, and a partition that cannot be asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.locate.metadata_topic.scripted_tier import ScriptedTier, segment_record
from tiered_stream.inspection import tier_contents as contents
from tiered_stream.inspection.segment_report import NotCounted, SegmentReport
from tiered_stream.inspection.tier_contents import tier_contents
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.parsing import parse_options

COPYING, DELETING = 0, 2


@pytest.fixture
def tier(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedTier]:
    made = ScriptedTier("orders", "users")
    monkeypatch.setattr(contents, "open_client", lambda properties: made.client)
    monkeypatch.setattr(contents, "supported_feature", lambda client, name: 0)
    yield made
    made.client.close()


def listed() -> SegmentReport:
    options = {"kafka.bootstrap.servers": "scripted:1", "subscribe": "orders,users"}
    return SegmentReport.of(tier_contents(parse_options(options, streaming=True)))


def test_of_all_copies_only_those_that_are_finished_and_of_the_logs_epochs_count(tier: ScriptedTier) -> None:
    topic_id = tier.topics["orders"]
    for number, state, epoch in ((1, COPYING, 0), (2, DELETING, 0), (3, 1, 7)):
        tier.tell("orders", segment_record("orders", topic_id, number, state=state, epoch=epoch))
    orders, users = listed().partitions
    assert [each.not_counted for each in orders.segments] == [
        (), (NotCounted.COPYING,), (NotCounted.DELETING,), (NotCounted.OTHER_EPOCHS,),
    ]  # fmt: skip
    assert [each.counts for each in orders.segments] == [(OffsetRange(0, 10),), (), (), ()]
    assert [each.counts for each in users.segments] == [(OffsetRange(0, 10),)]


def test_a_record_that_cannot_be_read_costs_its_partition_alone(tier: ScriptedTier) -> None:
    tier.tell("orders", segment_record("orders", tier.topics["orders"], 1)[:-3])
    found = listed()
    assert [each.partition for each in found.partitions] == [TopicPartition("users", 0)]
    ((partition, reason),) = found.faults
    assert partition == TopicPartition("orders", 0) and "breaks off" in reason
