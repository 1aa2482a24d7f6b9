from __future__ import annotations

import re
from uuid import UUID

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets, Log, through_log
from tests.plan.made_up_tier import MadeUpTier
from tiered_stream.errors import DataLossError, OpenTransactionError, UnknownTopicError
from tiered_stream.model import OffsetRange, TopicPartition, uuid_to_text
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.stream import StreamPlanner

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
BROKERS = {"kafka.bootstrap.servers": "b:9092", "fetchOffset.retryIntervalMs": "0"}
GO_ON = {"failOnDataLoss": "false"}
Offsets = dict[TopicPartition, int]


class Clock:
    """Milliseconds, as the test sets them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def planner(
    reader: InMemoryOffsets, *, clock: Clock | None = None, segments: MadeUpTier | None = None, **given: str
) -> StreamPlanner:
    topics = {} if "subscribePattern" in given else {"subscribe": "t"}
    options = parse_options({**BROKERS, "startingOffsets": "earliest", **topics, **given}, streaming=True)
    return StreamPlanner(options, reader, segments, clock=clock or Clock())


def run(stream: StreamPlanner, start: Offsets, limited: bool = True) -> list[list[int]]:
    """How many offsets each micro-batch reads, by partition, until nothing is new."""
    batches = []
    while (end := stream.next_end(start, limited=limited)) != start:
        batches.append([len(each) for _, each in sorted(stream.ranges(start, end).items())])
        start = end
    return batches


# Ends and limits


def test_without_a_limit_a_batch_takes_all_there_is() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 101), Log(0, 11)]})
    stream = planner(reader)
    assert stream.latest() is None
    assert run(stream, stream.initial()) == [[101, 11]]
    assert stream.latest() == {T0: 101, T1: 11}


@pytest.mark.contract("1.8 shares", "2.27")
def test_a_limit_is_shared_out_from_batch_to_batch() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 101), Log(0, 11), Log(0, 1)]})
    batches = run(planner(reader, maxOffsetsPerTrigger="10"), {T0: 0, T1: 0, T2: 0})
    assert batches[:2] == [[8, 1, 1], [9, 1, 0]]
    assert [sum(column) for column in zip(*batches, strict=True)] == [101, 11, 1]


@pytest.mark.contract("1.8 Trigger.Once", "2.27", "2.28")
def test_a_trigger_that_takes_all_ignores_the_limits() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 101)]})
    stream = planner(reader, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5", maxBytesPerTrigger="1")
    assert run(stream, {T0: 0}, limited=False) == [[101]]


@pytest.mark.contract("1.8 where a share ends")
def test_a_batch_ends_where_a_segment_ends_if_one_does_within_its_share() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 1000)]})
    stream = planner(reader, segments=MadeUpTier.ending_at({T0: [90, 190, 490, 900]}), maxOffsetsPerTrigger="200")
    ends, start = [], {T0: 0}
    while (end := stream.next_end(start, limited=True)) != start:
        ends.append(end[T0])
        start = end
    assert ends == [190, 390, 490, 690, 890, 1000]


def test_ends_are_exactly_those_of_the_shares_where_they_are_not_to_be_aligned() -> None:
    given = {"maxOffsetsPerTrigger": "200", "remote.segment.aligned.ends": "false"}
    stream = planner(InMemoryOffsets({"t": [Log(0, 1000)]}), segments=MadeUpTier.ending_at({T0: [90, 190]}), **given)
    assert stream.next_end({T0: 0}, limited=True) == {T0: 200}


@pytest.mark.contract("1.8 shares of new partitions")
def test_a_new_partition_s_share_counts_from_its_log_start() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 50), Log(950, 1000)]})
    stream = planner(reader, maxOffsetsPerTrigger="10", **GO_ON)
    assert stream.next_end({T0: 0}, limited=True) == {T0: 5, T1: 955}


@pytest.mark.contract("1.8 least offsets", "2.28")
def test_the_least_offsets_are_waited_for() -> None:
    reader, clock = InMemoryOffsets({"t": [Log(0, 3)]}), Clock()
    stream = planner(reader, clock=clock, minOffsetsPerTrigger="15", maxTriggerDelay="5s")
    assert stream.next_end({T0: 0}, limited=True) == {T0: 3}  # the first after a start fires
    reader.log(T0).latest = 10
    assert stream.next_end({T0: 3}, limited=True) == {T0: 3}
    reader.log(T0).latest = 18
    assert stream.next_end({T0: 3}, limited=True) == {T0: 18}
    reader.log(T0).latest = 20
    clock.now = 4999
    assert stream.next_end({T0: 18}, limited=True) == {T0: 18}
    clock.now = 5000
    assert stream.next_end({T0: 18}, limited=True) == {T0: 20}
    reader.log(T0).latest = 22
    assert stream.next_end({T0: 20}, limited=True) == {T0: 20}
    assert stream.next_end({T0: 20}, limited=False) == {T0: 22}


def test_all_offsets_of_a_new_partition_count_towards_the_least() -> None:
    reader, clock = InMemoryOffsets({"t": [Log(0, 10)]}), Clock()
    stream = planner(reader, clock=clock, minOffsetsPerTrigger="15", maxTriggerDelay="5s")
    assert stream.next_end({T0: 0}, limited=True) == {T0: 10}  # the first after a start fires
    reader.logs["t"] = [Log(0, 12), Log(5, 12)]
    assert stream.next_end({T0: 10}, limited=True) == {T0: 10}
    reader.log(T1).latest = 13
    assert stream.next_end({T0: 10}, limited=True) == {T0: 12, T1: 13}


@pytest.mark.contract("1.8 least and most", "2.29")
def test_waiting_and_capping_work_together() -> None:
    reader, clock = InMemoryOffsets({"t": [Log(0, 50)]}), Clock()
    stream = planner(reader, clock=clock, minOffsetsPerTrigger="15", maxOffsetsPerTrigger="20", maxTriggerDelay="5s")
    ends, start = [], {T0: 0}
    for clock.now in (0, 1000, 2000, 7000):
        start = stream.next_end(start, limited=True)
        ends.append(start[T0])
    assert ends == [20, 40, 40, 50]


# The start


def test_a_start_at_the_log_s_end_stays_where_it_was_looked_up_first() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = planner(reader, startingOffsets="latest")
    start = stream.initial()
    reader.log(T0).latest = 9
    assert stream.initial() == start == {T0: 5}
    end = stream.next_end(start, limited=True)
    assert end == {T0: 9}
    assert stream.ranges(start, end) == {T0: OffsetRange(5, 9)}
    assert stream.next_end(end, limited=True) is end


def test_the_first_batch_has_the_limit_of_all_others() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 15)]})
    stream = planner(reader, maxOffsetsPerTrigger="5")
    stream.available_now = True
    assert run(stream, stream.initial()) == [[5], [5], [5]]


def test_after_a_first_batch_at_the_end_losses_count_again() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = planner(reader, startingOffsets="latest")
    start = stream.initial()
    stream.ranges(start, stream.next_end(start, limited=True))
    reader.logs["t"] = [Log(0, 2)]
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        stream.ranges(start, stream.next_end(start, limited=True))


# An open transaction: the checkpoint of Spark's `kafka` source may lie beyond the last stable offset


@pytest.mark.contract("1.8 read_committed")
@pytest.mark.parametrize("policy", ["true", "false"])
def test_between_the_last_stable_offset_and_the_high_watermark_nothing_is_new_and_nothing_lost(policy: str) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10, high_watermark=31), Log(0, 4)]})
    stream = planner(reader, failOnDataLoss=policy)
    assert stream.next_end({T0: 31, T1: 4}, limited=True) == {T0: 31, T1: 4}
    reader.log(T1).latest = 9
    assert run(stream, {T0: 31, T1: 4}) == [[0, 5]]
    reader.log(T0).latest, reader.log(T0).high_watermark = 52, None
    assert run(stream, {T0: 31, T1: 9}) == [[21, 0]]


def test_the_high_watermark_is_asked_for_only_where_the_end_lies_below_what_was_read() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10, high_watermark=31)]})
    assert run(planner(reader), {T0: 3}) == [[7]]
    assert reader.watermark_questions == 0


@pytest.mark.parametrize("policy", ["true", "false"])
def test_a_planned_batch_that_ends_in_an_open_transaction_is_never_cut(policy: str) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 100, high_watermark=200), Log(0, 7)]})
    stream = planner(reader, failOnDataLoss=policy)
    with pytest.raises(OpenTransactionError, match="150 of t-0 .*offset 100") as raised:
        stream.ranges({T0: 50, T1: 0}, {T0: 150, T1: 7})
    assert raised.value.retriable
    assert stream.ranges({T0: 150, T1: 0}, {T0: 150, T1: 7}) == {T0: OffsetRange(150, 150), T1: OffsetRange(0, 7)}


def test_a_planned_batch_waits_for_a_transaction_that_ends() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 100, high_watermark=200)]})

    def commit(seconds: float) -> None:
        reader.log(T0).latest = 200

    options = parse_options({**BROKERS, "subscribe": "t"}, streaming=True)
    stream = StreamPlanner(options, reader, sleep=commit)
    assert stream.ranges({T0: 50}, {T0: 150}) == {T0: OffsetRange(50, 150)}


def test_available_now_ends_at_a_checkpoint_in_an_open_transaction() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10, high_watermark=31), Log(0, 4)]})
    assert run(available_now(reader), {T0: 31, T1: 0}) == [[0, 4]]


# Partitions that come and go


@pytest.mark.contract("1.6 new partition from 0", "1.6 new partition above 0")
def test_an_added_partition_is_read_from_its_start() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = planner(reader)
    reader.logs["t"].append(Log(0, 3))
    assert run(stream, {T0: 5}) == [[0, 3]]


@pytest.mark.contract("1.4 no partitions", "1.6 pattern that finds nothing any more", "2.32")
def test_a_pattern_whose_topics_are_all_gone_idles() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = planner(reader, subscribePattern="t.*")
    reader.delete("t")
    assert stream.next_end({T0: 5}, limited=True) == {T0: 5}
    assert stream.latest() is None


@pytest.mark.contract("1.4 no partitions")
def test_a_pattern_that_never_matched_picks_up_the_first_topic_from_its_start() -> None:
    reader = InMemoryOffsets()
    stream = planner(reader, subscribePattern="t.*", startingOffsets="latest")
    assert stream.next_end(stream.initial(), limited=True) == {}
    reader.create("t1", Log(0, 4))
    assert run(stream, {}) == [[4]]


@pytest.mark.contract("1.6 pattern that finds others", "2.31")
def test_when_one_topic_of_a_pattern_is_gone_the_others_go_on_if_they_may() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)], "tt": [Log(0, 2)]})
    start = {T0: 5, TopicPartition("tt", 0): 0}
    reader.delete("t")
    stream = planner(reader, subscribePattern="t.*")
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED\].*t-0"):
        stream.ranges(start, stream.next_end(start, limited=True))
    assert run(planner(reader, subscribePattern="t.*", **GO_ON), start) == [[2]]


@pytest.mark.contract("1.6 subscribed topic that is deleted")
@pytest.mark.parametrize("policy", ["true", "false"])
def test_a_subscribed_topic_that_is_deleted_always_fails(policy: str) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = planner(reader, failOnDataLoss=policy)
    reader.delete("t")
    with pytest.raises(UnknownTopicError):
        stream.next_end({T0: 5}, limited=True)


@pytest.mark.contract("1.6 partition that vanished")
def test_a_partition_that_vanishes_and_comes_back_is_new() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5), Log(0, 7)]})
    stream = planner(reader, **GO_ON)
    gone = reader.logs["t"].pop()
    end = stream.next_end({T0: 5, T1: 7}, limited=True)
    assert end == {T0: 5}
    assert stream.ranges({T0: 5, T1: 7}, end) == {T0: OffsetRange(5, 5)}
    reader.logs["t"].append(gone)
    assert run(stream, end) == [[0, 7]]


@pytest.mark.contract("1.6 end below the start")
def test_the_end_moves_down_with_a_log_that_shrank_if_it_may() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 1)]})
    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED.*from 2 to 1"):
        run(planner(reader), {T0: 2})
    stream = planner(reader, **GO_ON)
    assert run(stream, {T0: 2}) == [[0]]
    reader.log(T0).latest = 3
    assert run(stream, {T0: 1}) == [[2]]


@pytest.mark.contract("1.6 topic made again and longer")
def test_a_topic_made_again_is_noticed_even_when_it_has_grown_past_the_old_one() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream, lenient = planner(reader), planner(reader, **GO_ON)
    for each in (stream, lenient):
        each.next_end({T0: 0}, limited=True)
    reader.create("t", Log(0, 50))
    with pytest.raises(DataLossError, match=r"TOPIC_RECREATED"):
        stream.next_end({T0: 5}, limited=True)
    assert run(lenient, {T0: 5}) == [[45]]
    assert lenient.topic_ids == reader.ids


@pytest.mark.contract("1.6 topic made again and longer")
def test_a_topic_made_again_between_two_runs_is_noticed_by_its_id_in_the_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    first = planner(reader)
    end = through_log(first.next_end(first.initial(), limited=True))
    old, unnoted = uuid_to_text(reader.ids["t"]), dict(end)
    assert run(planner(reader), end) == []
    reader.create("t", Log(0, 50))
    ids = f"TOPIC_RECREATED.*its id was {old} and is {uuid_to_text(reader.ids['t'])}"
    for call in (
        lambda: planner(reader).next_end(end, limited=True),
        lambda: planner(reader).ranges(end, end),
        lambda: planner(reader).ranges(first.initial(), end),
    ):
        with pytest.raises(DataLossError, match=ids):
            call()
    lenient = planner(reader, **GO_ON)
    later = lenient.next_end(end, limited=True)
    assert lenient.ranges(end, later) == {T0: OffsetRange(5, 50)}, "as Spark's kafka source goes on"
    assert run(lenient, later) == []
    assert len(re.findall("TOPIC_RECREATED", caplog.text)) == 1
    assert run(planner(reader), through_log(later)) == []
    assert run(planner(reader), unnoted) == [[45]], "an older release has noted no id"


def test_a_topic_whose_id_is_not_the_one_the_user_named_is_data_loss() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = planner(reader, **{"remote.topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"})
    assert stream.topic_ids == {"t": UUID(int=1)}
    with pytest.raises(DataLossError, match=r"TOPIC_RECREATED"):
        stream.next_end({T0: 0}, limited=True)


@pytest.mark.contract("1.6 partition that vanished")
def test_deleted_partitions_under_a_group_id_are_reported_as_spark_does() -> None:
    stream = planner(InMemoryOffsets({"t": [Log(0, 5)]}), **{"kafka.group.id": "g"})
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"):
        stream.ranges({T0: 0, T1: 0}, {T0: 5})


@pytest.mark.contract("1.6 range below the log start")
def test_a_replayed_batch_whose_records_have_aged_out_fails_or_jumps_to_the_log_start() -> None:
    reader = InMemoryOffsets({"t": [Log(40, 100)]})
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE"):
        planner(reader).ranges({T0: 10}, {T0: 60})
    assert planner(reader, **GO_ON).ranges({T0: 10}, {T0: 60}) == {T0: OffsetRange(40, 60)}
    assert len(planner(reader, **GO_ON).ranges({T0: 10}, {T0: 30})[T0]) == 0


# AvailableNow


def available_now(reader: InMemoryOffsets, **given: str) -> StreamPlanner:
    stream = planner(reader, **given)
    stream.available_now = True
    return stream


@pytest.mark.contract("1.8 AvailableNow", "2.22")
def test_available_now_honours_the_limit_and_stops_at_what_was_there_at_first() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 15)]})
    stream = available_now(reader, maxOffsetsPerTrigger="5")
    first = stream.next_end({T0: 0}, limited=True)
    reader.log(T0).latest = 100
    reader.logs["t"].append(Log(0, 7))
    assert first == {T0: 5}
    assert run(stream, first) == [[5], [5]]


@pytest.mark.contract("1.8 least under AvailableNow")
def test_available_now_reads_everything_even_when_the_rest_is_below_the_least() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 7)]})
    assert run(available_now(reader, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="3"), {T0: 0}) == [[3], [3], [1]]


@pytest.mark.contract("1.8 AvailableNow checks", "2.24")
@pytest.mark.parametrize("policy", ["true", "false"])
@pytest.mark.parametrize(
    ("logs", "condition"),
    [
        ([Log(0, 5)], "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"),
        ([Log(0, 5), Log(0, 1)], "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST"),
    ],
    ids=["with fewer partitions", "with fewer rows"],
)
def test_available_now_fails_when_a_topic_is_made_again_with_less(policy: str, logs: list[Log], condition: str) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5), Log(0, 5)]})
    stream = available_now(reader, failOnDataLoss=policy)
    end = stream.next_end({T0: 0, T1: 0}, limited=True)
    reader.create("t", *logs)
    with pytest.raises(DataLossError, match=condition):
        stream.ranges({T0: 0, T1: 0}, end)


@pytest.mark.contract("1.8 AvailableNow", "2.20")
def test_an_uncommitted_batch_is_replayed_before_the_target_is_fixed() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5), Log(0, 4)]})
    stream = available_now(reader)
    assert stream.ranges({T0: 0}, {T0: 3}) == {T0: OffsetRange(0, 3)}
    assert run(stream, {T0: 3}) == [[2, 4]]


def test_a_start_at_the_end_under_available_now_ends_without_rows() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = available_now(reader, startingOffsets="latest")
    start = stream.initial()
    assert stream.next_end(start, limited=True) == start
    stream.ranges(start, start)
    assert stream.next_end(start, limited=True) == start


def test_a_partition_that_comes_just_before_the_target_is_fixed_is_read_under_available_now() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = available_now(reader, startingOffsets="latest")
    start = stream.initial()
    reader.logs["t"].append(Log(0, 3))
    assert run(stream, start) == [[0, 3]]


# Ends that are given


def bounded(reader: InMemoryOffsets, **given: str) -> StreamPlanner:
    starts, ends = '{"t":{"0":5,"1":0}}', '{"t":{"0":20,"1":4}}'
    where = {"assign": '{"t":[0,1]}', "startingOffsets": starts, "remote.stream.ending.offsets": ends}
    options = parse_options({**BROKERS, **where, **given}, streaming=True)
    return StreamPlanner(options, reader, clock=Clock(), sleep=lambda seconds: None)


def test_a_stream_with_given_ends_goes_so_far_and_no_further() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 101), Log(0, 4), Log(0, 50)]})
    stream = bounded(reader, maxOffsetsPerTrigger="10")
    batches = run(stream, stream.initial())
    assert [sum(of_partition) for of_partition in zip(*batches, strict=True)] == [15, 4] and len(batches) > 1
    reader.logs["t"][1].latest = 90
    assert run(bounded(reader), {T0: 20, T1: 4}) == []


def test_a_log_that_ends_before_a_given_end_is_data_loss() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 101), Log(0, 3)]})
    with pytest.raises(DataLossError, match=r"t-1 \(4, not 3\)"):
        bounded(reader).next_end({T0: 5, T1: 0}, limited=True)
    assert bounded(reader, **GO_ON).next_end({T0: 5, T1: 0}, limited=True) == {T0: 20, T1: 3}
