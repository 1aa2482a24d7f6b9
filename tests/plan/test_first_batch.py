"""A stream's first micro-batch: planned, failed before its commit, and read again by a new run."""

from __future__ import annotations

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets, Log, through_log
from tiered_stream.errors import ConfigurationError, DataLossError
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import notes_of
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.stream import StreamPlanner

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
GO_ON = {"failOnDataLoss": "false"}
EARLIEST = {"startingOffsets": "earliest"}
LATEST = {"startingOffsets": "latest"}
AT_0_AND_5 = {"startingOffsets": '{"t":{"0":0,"1":5}}'}
AT_TIME = {"startingTimestamp": "100"}
TIMES = {offset: offset * 10 for offset in range(100)}
"""Offset 10 was written at 100 ms."""

A_WHILE_AGO = {"startingTimestamp": "-40000d"}
AT_GROUP = {"startingOffsets": "group:g", "startingOffsetsByGroupStrategy": "earliest"}

STARTS = [EARLIEST, LATEST, AT_0_AND_5, AT_TIME, A_WHILE_AGO, AT_GROUP]
STARTS_IDS = ["earliest", "latest", "offsets", "timestamp", "before now", "group"]
BOTH = pytest.mark.parametrize("go_on", [{}, GO_ON], ids=["fail", "go on"])

Ranges = dict[TopicPartition, OffsetRange]


def planner(reader: InMemoryOffsets, given: dict[str, str]) -> StreamPlanner:
    topics = {} if "subscribePattern" in given else {"subscribe": "t"}
    raw = {"kafka.bootstrap.servers": "b:9092", "fetchOffset.retryIntervalMs": "0", **topics, **given}
    return StreamPlanner(parse_options(raw, streaming=True), reader)


def logged(reader: InMemoryOffsets, given: dict[str, str], *, limited: bool = True) -> PartitionOffsets:
    """The end of the first batch, as it is in the offset log of a run that then failed."""
    stream = planner(reader, given)
    start = stream.initial()
    end = stream.next_end(start, limited=limited)
    stream.ranges(start, end)
    return through_log(end)


def again(reader: InMemoryOffsets, given: dict[str, str], end: PartitionOffsets) -> tuple[Ranges, Ranges]:
    """What a new run reads as the first batch, up to `end`, and as the second."""
    stream = planner(reader, given)
    first = stream.ranges(stream.initial(), end)
    assert stream.ranges(stream.initial(), end) == first, "asked again, as for a source that is used twice"
    following = stream.next_end(end, limited=True)
    return first, stream.ranges(end, following)


def read(ranges: Ranges) -> PartitionOffsets:
    return {partition: len(each) for partition, each in ranges.items() if len(each)}


def all_read(first: Ranges, second: Ranges) -> dict[TopicPartition, list[int]]:
    return {each: [n for part in (first, second) if each in part for n in _offsets(part[each])] for each in second}


def _offsets(offsets: OffsetRange) -> range:
    return range(offsets.start, offsets.end)


@pytest.mark.contract("1.4 file of initial offsets", "2.25")
@pytest.mark.parametrize("limited", [True, False], ids=["limited", "all"])
def test_the_start_of_the_first_batch_is_written_down_with_its_end(limited: bool) -> None:
    reader = InMemoryOffsets({"t": [Log(5, 100, TIMES), Log(0, 20, TIMES)]})
    reader.groups["g"] = {T0: 7}
    for given, start in [
        (EARLIEST, {T0: 5, T1: 0}),
        (LATEST, {T0: 100, T1: 20}),
        (AT_0_AND_5, {T0: 0, T1: 5}),
        (AT_TIME, {T0: 10, T1: 10}),
        (A_WHILE_AGO, {T0: 0, T1: 0}),
        (AT_GROUP, {T0: 7, T1: 0}),
    ]:
        end = logged(reader, {**given, **GO_ON}, limited=limited)
        assert (end, notes_of(end).start) == ({T0: 100, T1: 20}, start)


@pytest.mark.contract("1.4 file of initial offsets", "2.25")
@pytest.mark.parametrize("limited", [True, False], ids=["limited", "all"])
@pytest.mark.parametrize(("ago", "start"), [(60, 0), (15, 3)])
def test_a_start_before_now_stays_when_days_have_passed(
    ago: int, start: int, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, now = {"startingTimestamp": f"-{ago}m"}, 50 * 60_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: now)
    reader = InMemoryOffsets({"t": [Log(0, 10, {offset: (32 + offset) * 60_000 for offset in range(10)})]})
    end = logged(reader, given, limited=limited)
    now += 5 * 60_000_000_000
    assert again(reader, given, end)[0] == {T0: OffsetRange(start, 10)}


def test_a_start_at_a_group_stays_when_the_group_has_committed_since() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10)]})
    reader.groups["g"] = {T0: 0}
    end = logged(reader, AT_GROUP)
    reader.groups["g"] = {T0: 8}
    assert again(reader, AT_GROUP, end)[0] == {T0: OffsetRange(0, 10)}


def test_another_start_in_the_options_does_not_move_a_first_batch_that_is_planned() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10), Log(0, 10)]})
    end = logged(reader, AT_0_AND_5)
    assert again(reader, EARLIEST, end)[0] == {T0: OffsetRange(0, 10), T1: OffsetRange(5, 10)}


def test_a_first_batch_without_news_is_followed_by_none() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10)]})
    stream = planner(reader, LATEST)
    end = stream.next_end(stream.initial(), limited=True)
    assert stream.next_end(end, limited=True) is end


@pytest.mark.contract("1.4 file of initial offsets")
@BOTH
@pytest.mark.parametrize("given", STARTS, ids=STARTS_IDS)
@pytest.mark.parametrize("came", [0, 7], ids=["the same partitions", "another partition"])
def test_nothing_is_lost_or_read_twice_and_a_new_partition_is_in_the_second_batch(
    given: dict[str, str], go_on: dict[str, str], came: int
) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 50, TIMES), Log(0, 20, TIMES)]})
    starts = planner(reader, given).initial()
    end = logged(reader, {**given, **go_on})
    reader.log(T0).latest = 60
    reader.logs["t"] += [Log(0, came)] * (came > 0)
    expected = {T0: list(range(starts[T0], 60)), T1: list(range(starts[T1], 20)), T2: list(range(came))}
    found = all_read(*again(reader, {**given, **go_on}, end))
    assert {T2: [], **found} == expected


@pytest.mark.parametrize("given", STARTS, ids=STARTS_IDS)
def test_a_log_start_that_has_moved_past_what_was_to_be_read_is_told(
    given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 50, TIMES), Log(0, 20, TIMES)]})
    end = logged(reader, given)
    reader.log(T0).earliest = reader.log(T0).latest = 60
    reader.log(T0).latest = 70
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE"):
        again(reader, given, end)
    caplog.clear()
    first, second = again(reader, {**given, **GO_ON}, end)
    assert all_read(first, second)[T0] == list(range(60, 70))
    assert "COULD_NOT_READ_OFFSET_RANGE" in caplog.text


@pytest.mark.parametrize("until", [60, 100, 120])
def test_rows_of_the_first_batch_that_retention_has_removed_are_reported(
    until: int, caplog: pytest.LogCaptureFixture
) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 120)]})
    given = {**EARLIEST, "maxOffsetsPerTrigger": "100"}
    end = logged(reader, given)
    reader.log(T0).earliest = until
    with pytest.raises(DataLossError, match=rf"COULD_NOT_READ_OFFSET_RANGE.*0 to 100 of t-0 .* holds {until} to 120"):
        again(reader, given, end)
    first, second = again(reader, {**given, **GO_ON}, end)
    assert all_read(first, second) == {T0: list(range(until, 120))}
    assert f"holds {until} to 120" in caplog.text


def test_a_log_that_began_beyond_0_all_the_time_is_no_loss() -> None:
    reader = InMemoryOffsets({"t": [Log(60, 100)]})
    end = logged(reader, EARLIEST)
    assert again(reader, EARLIEST, end) == ({T0: OffsetRange(60, 100)}, {T0: OffsetRange(100, 100)})


def test_a_timestamp_without_a_match_any_more_does_not_matter_to_a_batch_that_is_planned() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 50, TIMES)]})
    end = logged(reader, AT_TIME)
    reader.log(T0).timestamps = {}
    assert all_read(*again(reader, AT_TIME, end)) == {T0: list(range(10, 50))}


def test_a_position_that_does_not_fit_fails_where_a_batch_is_to_be_planned() -> None:
    stream = planner(InMemoryOffsets({"t": [Log(), Log(), Log()]}), AT_0_AND_5)
    with pytest.raises(ConfigurationError, match=r"KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*not named: t-2"):
        stream.next_end(stream.initial(), limited=True)


def test_offsets_beyond_the_end_stay_data_loss() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10)]})
    given = {"startingOffsets": '{"t":{"0":1000}}'}
    end = logged(reader, {**given, **GO_ON})
    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED.*1000 to 10"):
        again(reader, given, end)
    assert read(again(reader, {**given, **GO_ON}, end)[0]) == {}


@BOTH
def test_a_topic_that_is_gone_meanwhile_is_told(go_on: dict[str, str]) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 10)], "t2": [Log(0, 10)]})
    stream = planner(reader, {**LATEST, "subscribePattern": "t.*", **go_on})
    end = {T0: 10, TopicPartition("t2", 0): 10}
    reader.delete("t2")
    if go_on:
        assert read(stream.ranges(stream.initial(), end)) == {}
    else:
        with pytest.raises(DataLossError, match=r"INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS\].*t2-0"):
            stream.ranges(stream.initial(), end)


# What an older release planned, without notes: an empty batch, unless it began at 0 or at offsets in the options


def test_the_log_start_moves_into_an_older_release_s_batch_that_began_at_0() -> None:
    reader, end = InMemoryOffsets({"t": [Log(60, 100)]}), {T0: 100}
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*offset 100 of t-0.*before offset 60"):
        again(reader, EARLIEST, end)
    assert again(reader, {**EARLIEST, **GO_ON}, end)[0] == {T0: OffsetRange(60, 100)}


def test_the_log_start_moves_past_an_older_release_s_batch_that_began_at_0(caplog: pytest.LogCaptureFixture) -> None:
    given = {**EARLIEST, "maxOffsetsPerTrigger": "25"}
    reader, end = InMemoryOffsets({"t": [Log(60, 100)]}), {T0: 25}
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*offset 25 of t-0.*before offset 60"):
        again(reader, given, end)
    assert read(again(reader, {**given, **GO_ON}, end)[0]) == {}
    assert "up to offset 25 of t-0" in caplog.text and "offsets 25 to 50 of t-0 are wanted" in caplog.text


def test_an_older_release_s_empty_batch_is_no_loss() -> None:
    reader = InMemoryOffsets({"t": [Log(60, 100)]})
    first, second = again(reader, EARLIEST, {T0: 60})
    assert (read(first), second) == ({}, {T0: OffsetRange(60, 100)})


# What Spark's `kafka` source planned: never an empty batch


def test_a_kafka_source_s_first_batch_from_earliest_is_read() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 100), Log(0, 50)]})
    assert again(reader, EARLIEST, {T0: 80, T1: 50})[0] == {T0: OffsetRange(0, 80), T1: OffsetRange(0, 50)}


def test_a_kafka_source_s_first_batch_from_latest_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    reader = InMemoryOffsets({"t": [Log(0, 100), Log(0, 0)]})
    first, second = again(reader, LATEST, {T0: 80, T1: 0})
    assert (read(first), second[T0]) == ({}, OffsetRange(80, 100))
    assert caplog.text.count("taken to be empty, as older releases of tiered_stream plan it, in t-0. ") == 1


def test_a_kafka_source_s_first_batch_at_a_timestamp_above_the_log_start_is_read() -> None:
    reader = InMemoryOffsets({"t": [Log(5, 100, {n: n * 10 for n in range(5, 100)})]})
    assert again(reader, AT_TIME, {T0: 80})[0] == {T0: OffsetRange(10, 80)}


@pytest.mark.parametrize(("given", "warned"), [({}, True), (LATEST, True), (EARLIEST, False), (AT_0_AND_5, False)])
def test_a_start_at_the_end_of_an_archive_is_warned_of_once(
    given: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    archive = {"remote.log.locator": "archive", "remote.storage.layout": "aiven", "remote.storage.uri": "file:///tier"}
    reader = InMemoryOffsets({"t": [Log(0, 50), Log(0, 50)]})
    end = logged(reader, {**archive, **given})
    assert ["startingOffsets=earliest" in line for line in caplog.messages] == [True] * warned
    caplog.clear()
    again(reader, {**archive, **given}, end)
    assert not [line for line in caplog.messages if "archive" in line]
