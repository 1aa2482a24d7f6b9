from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets, Log
from tests.plan.made_up_tier import MADE_UP_ID, MadeUpTier, TieredLog
from tiered_stream.errors import ConfigurationError, DataLossError, OpenTransactionError, UnknownTopicError
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, Split, TopicPartition, uuid_to_text
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.batch import plan_batch

T0, T1 = (TopicPartition("t", number) for number in range(2))
BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "fetchOffset.numRetries": "1"}


def plan(reader: InMemoryOffsets, locator: MadeUpTier | None = None, **given: str) -> list[Split]:
    return plan_batch(parse_options({**BASE, **given}, streaming=False), LogSource(reader, locator))


def logs() -> InMemoryOffsets:
    return InMemoryOffsets({"t": [Log(5, 100), Log(0, 10), Log()]})


def test_everything_there_is_now_is_read_from_tier_and_broker_under_the_topics_id() -> None:
    reader = logs()
    reader.ids["t"] = MADE_UP_ID
    splits = plan(reader, MadeUpTier({T0: [TieredLog(0, 60)]}))
    assert [(split.topic_partition, split.offsets, len(split.locations)) for split in splits] == [
        (T0, OffsetRange(5, 60), 1),
        (T0, OffsetRange(60, 100), 0),
        (T1, OffsetRange(0, 10), 0),
    ]
    assert {split.topic_id for split in splits} == {MADE_UP_ID}


@pytest.mark.contract("1.7 maxRecordsPerPartition", "1.7 earliest and latest of a batch query")
def test_the_options_say_what_is_read_and_in_how_many_splits() -> None:
    given = {"startingOffsets": '{"t":{"0":10,"1":-2,"2":-2}}', "endingOffsets": '{"t":{"0":20,"1":-1,"2":-1}}'}
    splits = plan(logs(), **given, maxRecordsPerPartition="5")
    assert [(split.topic_partition, split.offsets.start, split.offsets.end) for split in splits] == [
        (T0, 10, 15),
        (T0, 15, 20),
        (T1, 0, 5),
        (T1, 5, 10),
    ]


def test_a_topic_that_is_made_again_while_it_is_planned_is_not_taken_for_the_one_before() -> None:
    class MadeAgain(InMemoryOffsets):
        def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            ends = super().latest(partitions)
            self.create("t", Log(0, 500))
            return ends

    reader = MadeAgain({"t": [Log(0, 100)]})
    before = reader.ids["t"]
    (split,) = plan(reader)
    assert (split.offsets, split.topic_id) == (OffsetRange(0, 100), before)


@pytest.mark.contract("1.7 empty ranges", "2.78")
def test_an_empty_topic_has_no_splits() -> None:
    assert plan(InMemoryOffsets({"t": [Log(), Log(7, 7)]})) == []


@pytest.mark.contract("1.2 subscribe")
def test_a_topic_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownTopicError, match="topic t "):
        plan(InMemoryOffsets())


def test_a_topic_that_is_not_the_one_it_is_pinned_to_is_data_loss() -> None:
    reader = logs()
    present, other = uuid_to_text(reader.ids["t"]), uuid_to_text(UUID(int=99))
    with pytest.raises(DataLossError, match=f"{other} .*{present}"):
        plan(reader, **{"remote.topic.id": other})
    assert len(plan(reader, **{"remote.topic.id": present})) == 2


@pytest.mark.contract("1.6 range beyond the last stable offset")
def test_an_end_in_an_open_transaction_is_an_error_where_nothing_may_be_left_out() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 100, high_watermark=200)]})
    with pytest.raises(OpenTransactionError, match="150 of t-0 .*offset 100"):
        plan(reader, startingOffsets='{"t":{"0":120}}', endingOffsets='{"t":{"0":150}}')
    with pytest.raises(ConfigurationError, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.* 100"):
        plan(reader, startingOffsets='{"t":{"0":120}}')  # as Spark's source
    assert [each.offsets for each in plan(reader)] == [OffsetRange(0, 100)]
    assert plan(reader, startingOffsets='{"t":{"0":150}}', endingOffsets='{"t":{"0":150}}') == []


@pytest.mark.contract("1.6 range beyond the last stable offset")
def test_an_end_in_an_open_transaction_is_cut_with_a_warning_where_offsets_may_be_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As by Spark's source (found by `make differential`)."""
    reader = InMemoryOffsets({"t": [Log(0, 100, high_watermark=200), Log(0, 50)]})
    given = {"failOnDataLoss": "false"}
    splits = plan(reader, **given, endingOffsets='{"t":{"0":150,"1":50}}')
    assert [each.offsets for each in splits] == [OffsetRange(0, 100), OffsetRange(0, 50)]
    (warning,) = caplog.messages
    assert "150 of t-0" in warning and "offset 100" in warning
    splits = plan(reader, **given, startingOffsets='{"t":{"0":120,"1":50}}', endingOffsets='{"t":{"0":150,"1":50}}')
    assert splits == []


def test_an_end_beyond_the_high_watermark_is_data_loss_also_in_an_open_transaction() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 100, high_watermark=120)]})
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE"):
        plan(reader, endingOffsets='{"t":{"0":150}}')
    (split,) = plan(reader, endingOffsets='{"t":{"0":150}}', failOnDataLoss="false")
    assert split.offsets == OffsetRange(0, 100)
