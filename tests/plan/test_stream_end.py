from __future__ import annotations

import logging

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets, Log, through_log
from tiered_stream.errors import ConfigurationError, DataLossError
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import notes_of
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.offset_lookup import OffsetLookup
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.plan.stream_bounds import StreamEnd

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BASE = {
    "kafka.bootstrap.servers": "b:9092", "subscribe": "t", "startingOffsets": "earliest", "boundedStreaming": "true",
    "fetchOffset.numRetries": "1",
}  # fmt: skip
TIMES = {offset: offset * 10 for offset in range(20)}
"""Offset 2 was written at 20 ms."""


def planner(reader: InMemoryOffsets, **given: str) -> StreamPlanner:
    return StreamPlanner(parse_options({**BASE, **given}, streaming=True), reader)


def end_of(reader: InMemoryOffsets, now_ms: int, **given: str) -> StreamEnd:
    options = parse_options({**BASE, **given}, streaming=True)
    lookup = OffsetLookup(reader, options.subscription, 1, 0, now_ms=lambda: now_ms)
    return StreamEnd(options.ending, lookup)


def test_a_bounded_stream_reads_up_to_its_end_in_micro_batches(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stream = planner(
        InMemoryOffsets({"t": [Log(0, 10), Log(0, 10)]}),
        endingOffsets='{"t":{"0":7,"1":2}}', maxOffsetsPerTrigger="6",
    )  # fmt: skip
    ends, start = [], stream.initial()
    while (end := stream.next_end(start, limited=True)) != start:
        assert stream.ranges(start, end) == {each: OffsetRange(start[each], end[each]) for each in end}
        ends.append((end[T0], end[T1]))
        start = end
    assert ends == [(4, 1), (7, 2)]
    stream.next_end(start, limited=True)
    told = [record.message for record in caplog.records if "has reached its end" in record.message]
    assert told == ['the stream has reached its end, and reads no more: {"t":{"0":7,"1":2}}']


def test_a_run_with_available_now_ends_at_the_stream_s_end() -> None:
    stream = planner(InMemoryOffsets({"t": [Log(0, 10)]}), endingOffsets='{"t":{"0":7}}')
    stream.available_now = True
    assert stream.next_end(stream.initial(), limited=True) == {T0: 7}
    assert stream.next_end({T0: 7}, limited=True) == {T0: 7}


def test_an_end_that_is_yet_to_come_is_read_up_to_as_it_comes() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 5)]})
    stream = planner(reader, endingOffsets='{"t":{"0":7}}')
    assert stream.next_end({T0: 0}, limited=True) == {T0: 5}
    reader.log(T0).latest = 100
    assert stream.next_end({T0: 5}, limited=True) == {T0: 7}


def test_a_checkpoint_beyond_the_end_has_nothing_to_read_and_loses_nothing() -> None:
    stream = planner(InMemoryOffsets({"t": [Log(0, 100)]}), endingOffsets='{"t":{"0":7}}')
    assert stream.next_end({T0: 50}, limited=True) == {T0: 50}


def test_a_log_that_shrank_is_still_data_loss() -> None:
    stream = planner(InMemoryOffsets({"t": [Log(0, 3)]}), endingOffsets='{"t":{"0":7}}')
    end = stream.next_end({T0: 5}, limited=True)
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        stream.ranges({T0: 5}, end)


def test_a_partition_ends_before_its_first_record_at_or_after_the_time() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 20, TIMES), Log(0, 4, {0: 1, 1: 2, 2: 3, 3: 4})]})
    end = end_of(reader, now_ms=1000, endingTimestamp="45")
    assert end.within({}, {T0: 20, T1: 4}) == {T0: 5, T1: 4}
    reader.log(T1).latest = 9  # its time was past when it was looked for: it has ended
    assert end.within({}, {T0: 20, T1: 9}) == {T0: 5, T1: 4}


def test_until_its_time_has_come_a_partition_without_such_a_record_goes_on() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 4, {0: 1})]})
    end = end_of(reader, now_ms=40, endingTimestamp="45")
    assert end.within({}, {T0: 4}) == {T0: 4}
    assert end.within({}, {T0: 8}) == {T0: 8}
    reader.log(T0).timestamps[6] = 50
    assert end.within({}, {T0: 9}) == {T0: 6}


def test_an_end_at_a_time_stays_open_while_a_transaction_is_open() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 4, {0: 1}, high_watermark=7)]})
    end = end_of(reader, now_ms=1000, endingTimestamp="45")
    assert end.within({}, {T0: 4}) == {T0: 4}
    assert end.written is None
    reader.logs["t"] = [Log(0, 9, {0: 1})]  # the transaction is committed
    assert end.within({T0: 4}, {T0: 9}) == {T0: 9}
    reader.log(T0).latest = 12
    assert end.within({T0: 9}, {T0: 12}) == {T0: 9}


def test_transactions_that_always_overlap_do_not_keep_an_end_at_a_time_open() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 4, {0: 1}, high_watermark=7)]})
    end = end_of(reader, now_ms=1000, endingTimestamp="45")
    for latest, expected in ((4, 4), (6, 6), (8, 8), (15, 8)):  # from 7 on, all that was there at first is decided
        reader.logs["t"] = [Log(0, latest, {0: 1}, high_watermark=latest + 3)]
        assert end.within({}, {T0: latest}) == {T0: expected}


def test_an_end_at_a_time_does_not_wait_for_offsets_that_an_unclean_election_has_removed() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 4, {0: 1}, high_watermark=7)]})
    end = end_of(reader, now_ms=1000, endingTimestamp="45")
    assert end.within({}, {T0: 4}) == {T0: 4}
    reader.logs["t"] = [Log(0, 5, {0: 1})]
    assert end.within({T0: 4}, {T0: 5}) == {T0: 5}
    reader.log(T0).latest = 9
    assert end.within({T0: 5}, {T0: 9}) == {T0: 5}


def test_an_end_at_the_log_s_end_has_all_offsets_that_came_before_its_time() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 9, {0: 1})]})
    end = end_of(reader, now_ms=45, endingTimestamp="45")
    assert end.within({}, {T0: 4}) == {T0: 4}  # five offsets came after this look-up, and before the time
    assert end.within({T0: 4}, {T0: 12}) == {T0: 9}


def test_back_from_now_is_counted_once() -> None:
    end = end_of(InMemoryOffsets({"t": [Log(0, 20, TIMES)]}), now_ms=1045, endingTimestamp="-1s")
    assert end.within({}, {T0: 20}) == {T0: 5}


def test_times_by_partition_end_each_on_its_own_and_leave_out_what_is_added_later() -> None:
    reader = InMemoryOffsets({"t": [Log(0, 20, TIMES)]})
    end = end_of(reader, now_ms=1000, endingOffsetsByTimestamp='{"t":{"0":30}}')
    assert end.within({}, {T0: 20}) == {T0: 3}
    reader.create("t", Log(0, 20, TIMES), Log(0, 2))
    assert end.within({}, {T0: 20, T1: 2}) == {T0: 3}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endingOffsets": '{"t":{"0":5}}'}, "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED.*ending.*not named: t-1"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":5,"1":5,"2":5}}'}, "KAFKA_TIMESTAMP_OFFSET.*named but not read: t-2"),
    ],
)
def test_the_end_names_the_partitions_that_are_read(given: dict[str, str], said: str) -> None:
    stream = planner(InMemoryOffsets({"t": [Log(0, 9), Log(0, 9)]}), **given)
    with pytest.raises(ConfigurationError, match=said):
        stream.next_end({T0: 0, T1: 0}, limited=True)


# A new run goes on with the end that an earlier one has written down


MINUTE = 60_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    clock = {"ms": 0}
    monkeypatch.setattr("time.time_ns", lambda: clock["ms"] * 1_000_000)
    return clock


def a_record_a_minute(latest: int) -> Log:
    return Log(0, latest, {offset: offset * MINUTE for offset in range(latest)})


def batch(reader: InMemoryOffsets, start: PartitionOffsets | None, **given: str) -> PartitionOffsets:
    """The end of the next micro-batch by a new run, after it was JSON in Spark's offset log."""
    stream = planner(reader, **given)
    end = stream.next_end(stream.initial() if start is None else start, limited=True)
    return through_log(end)


def test_an_end_before_now_stays_when_the_query_starts_again_later(clock: dict[str, int]) -> None:
    given = {"endingTimestamp": "-10m", "maxOffsetsPerTrigger": "7"}
    reader, ends = InMemoryOffsets({"t": [a_record_a_minute(100)]}), []
    end: PartitionOffsets | None = None
    for now in range(30, 100, 10):
        clock["ms"] = now * MINUTE
        end = batch(reader, end, **given)
        ends.append(end[T0])
    assert ends == [7, 14, 20, 20, 20, 20, 20]


def test_another_end_in_the_options_is_taken(clock: dict[str, int]) -> None:
    clock["ms"] = 30 * MINUTE
    reader = InMemoryOffsets({"t": [a_record_a_minute(100)]})
    end = batch(reader, None, endingTimestamp="-10m")
    assert batch(reader, end, endingTimestamp="-5m") == {T0: 25}
    assert batch(reader, end, endingTimestamp=str(40 * MINUTE)) == {T0: 40}


def test_an_end_stays_when_retention_has_removed_the_record_that_gave_it(clock: dict[str, int]) -> None:
    clock["ms"] = 200 * MINUTE
    given = {"endingTimestamp": str(40 * MINUTE)}
    reader = InMemoryOffsets({"t": [a_record_a_minute(100)]})
    end = batch(reader, None, **given)
    reader.log(T0).earliest, reader.log(T0).timestamps = 60, {offset: offset * MINUTE for offset in range(60, 100)}
    assert end == batch(reader, end, **given) == {T0: 40}


def test_an_end_where_the_log_ended_stays_when_late_records_follow(clock: dict[str, int]) -> None:
    clock["ms"] = 200 * MINUTE
    given = {"endingTimestamp": str(190 * MINUTE)}
    reader = InMemoryOffsets({"t": [a_record_a_minute(100)]})
    end = batch(reader, None, **given)
    reader.log(T0).latest = 120
    assert end == batch(reader, end, **given) == {T0: 100}


def test_an_end_that_comes_without_news_is_written_down_once(clock: dict[str, int]) -> None:
    clock["ms"], reader = 40 * MINUTE, InMemoryOffsets({"t": [a_record_a_minute(40)]})
    stream = planner(reader, endingTimestamp=str(50 * MINUTE))
    end = stream.next_end(stream.initial(), limited=True)
    assert stream.next_end(end, limited=True) is end
    clock["ms"] = 50 * MINUTE
    last = stream.next_end(end, limited=True)
    assert (last, notes_of(last) != notes_of(end)) == (end, True)
    assert stream.next_end(last, limited=True) is last


@pytest.mark.parametrize(
    "given", [{"endingOffsets": '{"t":{"0":30}}'}, {"endingOffsetsByTimestamp": f'{{"t":{{"0":{30 * MINUTE}}}}}'}]
)
def test_a_partition_that_was_added_does_not_stop_a_new_run_whose_end_does_not_name_it(
    given: dict[str, str], clock: dict[str, int]
) -> None:
    clock["ms"], reader = 10 * MINUTE, InMemoryOffsets({"t": [a_record_a_minute(10)]})
    end = batch(reader, None, **given)
    reader.logs["t"] = [a_record_a_minute(40), a_record_a_minute(5)]
    assert batch(reader, end, **given) == {T0: 30}
